// Requests that the server refuses, or cannot even read.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "tests/tools/serve/http_server_fixture.h"

namespace trimtab {
namespace {

using nlohmann::json;

struct BadRequest {
  const char* path;
  std::string body;
  int status;
  const char* message;
};

TEST_F(HttpServerTest, RefusesWithOneClearLine) {
  Start({.max_body_bytes = 4096});
  const std::string completions = "/v1/completions";
  const std::vector<BadRequest> cases = {
      {"/v1/completions", "", 400, "body:1:1"},
      {"/v1/completions", "{", 400, "body:1:2"},
      {"/v1/completions", "[]", 400, "$: expected an object"},
      {"/v1/completions", "\xFF", 400, "body:1:1"},
      {"/v1/completions", "{}", 400, "$.prompt: required"},
      {"/v1/completions", R"({"model": "gpt-4", "prompt": "x"})", 404, "expected 'echo'"},
      {"/v1/completions", R"({"model": "echo"})", 400, "$.prompt"},
      {"/v1/completions", Completion({{"prompt", {1, 257}}}), 400,
       "$.prompt[1]: expected a token id from 0 to 256, got 257"},
      {"/v1/completions", Completion({{"prompt", {{1, -1}}}}), 400, "$.prompt[0][1]: expected"},
      {"/v1/completions", Completion({{"prompt", json::array()}}), 400, "$.prompt"},
      {"/v1/completions", Completion({{"prompt", {"a", 5}}}), 400, "$.prompt[1]: expected a text"},
      {"/v1/completions", Completion({{"prompt", {json::array()}}}), 400, "$.prompt[0]"},
      {"/v1/completions", Completion({{"temperature", -1}}), 400, "$.temperature"},
      {"/v1/completions", Completion({{"top_p", 0}}), 400,
       "$.top_p: expected a number above 0, up to 1, got 0"},
      {"/v1/completions", Completion({{"seed", 1e30}}), 400, "to 9223372036854775807"},
      {"/v1/completions", Completion({{"max_tokens", 0}}), 400, "\"echo\": true"},
      {"/v1/completions", Completion({{"max_tokens", "9"}}), 400, "$.max_tokens"},
      {"/v1/completions", Completion({{"n", 129}}), 400, "$.n: expected an integer from 1 to 128"},
      {"/v1/completions", Completion({{"suffix", "x"}}), 400, "$.suffix: expected \"\", got \"x\""},
      {"/v1/completions", Completion({{"typical_p", 0.5}}), 400, "top_k, top_p and min_p"},
      {"/v1/completions", Completion({{"best_of", 2}, {"n", 3}}), 400, "$.best_of: expected at"},
      {"/v1/completions", Completion({{"best_of", 2}, {"stream", true}}), 400, "$.best_of"},
      {"/v1/completions", Completion({{"logit_bias", {{"257", 1}}}}), 400, "$.logit_bias.257"},
      {"/v1/completions", Completion({{"logit_bias", {{"a", 1}}}}), 400, "$.logit_bias"},
      {"/v1/completions", Completion({{"guided_regex", "a"}, {"guided_choice", {"b"}}}), 400,
       "as an answer has one grammar"},
      {"/v1/completions", Completion({{"response_format", {{"type", "xml"}}}}), 400,
       "$.response_format.type"},
      {"/v1/completions", Completion({{"stop", ""}}), 400, "$.stop"},
      {"/v1/completions", Completion({{"logprobs", 99}}), 400, "$.logprobs"},
      {"/v1/completions", Completion({{"stream_options", json::object()}}), 400,
       "$.stream_options"},
      {"/v1/completions", Completion({{"prompt", std::string(600, 'x')}}), 400, "longer than"},
      {"/v1/completions", Completion({{"prompt", std::string(5000, 'x')}}), 413, "too large"},
      {"/v1/chat/completions", R"({"model": "echo", "messages": []})", 400, "$.messages"},
      {"/v1/chat/completions",
       R"({"model": "echo", "messages": [{"role": "robot", "content": ""}]})", 400,
       "$.messages[0].role"},
      {"/v1/chat/completions", Chat({{"tools", json::array({Weather()})}}), 400,
       "has no place for tools"},
      {"/v1/chat/completions", Chat({{"tool_choice", "required"}}), 400, "there are no tools"},
      {"/v1/responses", R"({"input": "x", "previous_response_id": "r"})", 400, "are not kept"},
      {"/v1/embeddings", R"({"input": "x", "dimensions": 3})", 400, "$.dimensions: expected 2"},
      {"/detokenize", R"({"tokens": [999]})", 400, "$.tokens[0]"},
      {"/infill", "{}", 404, "expected /v1/completions"},
      {"/v1/chat/completions",
       R"({"model": "echo", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       400, "$.messages[0].content[0].type"},
      {"/v1/nothing", "{}", 404, "no such path"},
  };
  for (const BadRequest& bad : cases) {
    const Reply reply = Post(bad.path, bad.body);
    EXPECT_EQ(reply.status, bad.status) << bad.body << reply.body;
    const std::string message = reply.parsed()["error"]["message"];
    EXPECT_TRUE(message.find(bad.message) != std::string::npos) << bad.body << ": " << message;
  }
  EXPECT_EQ(Get("/v1/completions").status, 405);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
}

// Schemas of tools refer to what they define at their own roots.
TEST_F(HttpServerTest, ForcesCallsOfToolsThatDefineTypes) {
  Start();
  const auto tool = [](const char* name, const char* reference) {
    json parameters = {{"type", "object"}, {"$defs", {{"City", {{"enum", {"Rome", "$ref"}}}}}}};
    parameters["properties"] = {{"city", {{"$ref", reference}}}, {"$ref", {{"type", "boolean"}}}};
    return json{{"type", "function"},
                {"function", {{"name", name}, {"parameters", std::move(parameters)}}}};
  };
  const auto post = [&](const char* reference) {
    return Post("/v1/chat/completions",
                Chat({{"tools", {tool("a", "#/$defs/City"), tool("b", reference)}},
                      {"tool_choice", "required"}}));
  };
  EXPECT_EQ(post("#/$defs/City").status, 200);
  EXPECT_EQ(post("#").status, 200);
  const Reply bad = post("#/$defs/Town");
  EXPECT_EQ(bad.status, 400);
  EXPECT_NE(bad.body.find("$.tool_choice: JSON schema: $.$defs.parameters1"), std::string::npos)
      << bad.body;
}

TEST_F(HttpServerTest, NamesWhatItIgnoresAndRefusesItWhereItIsStrict) {
  Start();
  const std::string body = R"('{"prompt": "a", "max_tokens": 1, "temperatur": 1, "x\ny": 2}')";
  EXPECT_NE(Head("/v1/completions", "-d " + body).find("X-Trimtab-Ignored: temperatur, x?y\r\n"),
            std::string::npos)
      << Head("/v1/completions", "-d " + body);
  EXPECT_EQ(Head("/v1/completions", R"(-d '{"prompt": "a", "max_tokens": 1}')").find("Ignored"),
            std::string::npos);
  server_.reset();
  strict_ = true;
  Start();
  const Reply reply = Post("/v1/completions", Completion({{"temperatur", 1}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("$.temperatur: unknown field; did you mean 'temperature'?"),
            std::string::npos)
      << reply.body;
}

// What curl sends is a form, as it says, unless it is told otherwise.
TEST_F(HttpServerTest, TakesLongBodiesWhateverTheyAreCalled) {
  Start();
  const std::string body = Completion() + std::string(20000, ' ');
  for (const char* flags : {"", "-H 'Content-Type: application/json'", "-H 'Content-Type:'",
                            "-H 'Transfer-Encoding: chunked'"}) {
    const Reply reply = Post("/v1/completions", body, flags);
    EXPECT_EQ(reply.status, 200) << flags << reply.body;
  }
  const Reply parts = Split(Curl("/v1/completions", "-F 'prompt=a'"));
  EXPECT_EQ(parts.status, 400);
  EXPECT_NE(parts.body.find("expected a JSON object"), std::string::npos) << parts.body;
}

TEST_F(HttpServerTest, AsksForItsKey) {
  Start({.api_key = "sesame"});
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesam'").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesame'").status, 200);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: bearer sesame'").status, 200);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Basic sesame'").status, 401);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 401);
}

enum class Then { kEnd, kWait };

/// Sends bytes as they are, and what there is no more of or not; reads until the server closes or
/// says nothing for a while.
std::string SendRaw(int port, const std::string& bytes, Then then) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {then == Then::kEnd ? 1 : 9, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    static_cast<void>(sent);
    if (then == Then::kEnd) ::shutdown(fd, SHUT_WR);
    char buffer[4096];
    for (ssize_t count; (count = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
  }
  ::close(fd);
  return answer;
}

// Its length is not known before.
TEST_F(HttpServerTest, RefusesBodiesInChunksThatAreTooLarge) {
  Start({.max_body_bytes = 4096});
  const std::string chunked = "-H 'Transfer-Encoding: chunked' -H 'Expect:'";
  EXPECT_EQ(Post("/v1/completions", Completion(), chunked).status, 200);
  const Reply large = Post("/v1/completions", Completion() + std::string(5000, ' '), chunked);
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.body.find("expected at most 4096 bytes"), std::string::npos) << large.body;
}

TEST_F(HttpServerTest, AnswersAllOfItWhateverRangeAPostAsksFor) {
  Start();
  const Reply reply = Post("/v1/completions", Completion(), "-H 'Range: bytes=0-5'");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.parsed()["choices"][0]["text"], "hello hel");
}

TEST_F(HttpServerTest, RefusesEncodingsThatItCannotRead) {
  Start();
  const Reply reply = Post("/v1/completions", Completion(), "-H 'Content-Encoding: zstd'");
  EXPECT_EQ(reply.status, 415);
  EXPECT_NE(reply.body.find("'zstd'; expected identity, gzip, deflate or br"), std::string::npos)
      << reply.body;
  EXPECT_EQ(Post("/v1/completions", Completion(), "-H 'Content-Encoding: identity'").status, 200);
}

std::string HeadOf(const std::string& line, const std::string& more = "") {
  return line + "\r\nHost: x\r\n" + more + "\r\n";
}

// The client waits for an answer, and the library, without a word, for the rest of the body.
TEST_F(HttpServerTest, RefusesLengthsAtOnce) {
  Start({.max_body_bytes = 4096});
  struct Case {
    const char* headers;
    int status;
    const char* message;
  };
  for (const Case& bad :
       {Case{"Content-Length: -1\r\n", 400, "'-1'; expected a number of bytes"},
        Case{"Content-Length: many\r\n", 400, "'many'; expected"},
        Case{"Content-Length: 65537\r\n", 413, "at most 4096 bytes"},
        Case{"Content-Length: 4097\r\nExpect: 100-continue\r\n", 413, "at most 4096 bytes"},
        Case{"Content-Length: 99999999999999999999\r\n", 413, "at most 4096"},
        Case{"Content-Length: 5\r\nContent-Length: 6\r\n", 400, "expected one"},
        Case{"", 411, "no Content-Length; expected a JSON object as the body"}}) {
    const std::string answer =
        SendRaw(server_->port(), HeadOf("POST /v1/completions HTTP/1.1", bad.headers), Then::kWait);
    EXPECT_TRUE(answer.starts_with(fmt::format("HTTP/1.1 {} ", bad.status)))
        << bad.headers << answer;
    EXPECT_NE(answer.find(bad.message), std::string::npos) << bad.headers << answer;
  }
}

TEST_F(HttpServerTest, SaysWhatAHeadLacks) {
  Start();
  const auto answer = [&](const std::string& line) {
    return SendRaw(server_->port(), HeadOf(line), Then::kWait);
  };
  const std::string unknown = answer("HELLO");
  EXPECT_TRUE(unknown.starts_with("HTTP/1.1 400 ")) << unknown;
  EXPECT_NE(unknown.find("\"the request is not understood; expected HTTP/1.1"), std::string::npos)
      << unknown;
  const std::string far = answer("GET /" + std::string(9000, 'x') + " HTTP/1.1");
  EXPECT_TRUE(far.starts_with("HTTP/1.1 414 ")) << far;
  EXPECT_NE(far.find("at most 8192 bytes"), std::string::npos) << far;
  const std::string method = answer("DELETE /v1/models/echo HTTP/1.1");
  EXPECT_TRUE(method.starts_with("HTTP/1.1 405 ")) << method;
  EXPECT_NE(method.find("\r\nAllow: GET, HEAD, OPTIONS\r\n"), std::string::npos) << method;
  EXPECT_NE(method.find("/v1/models/echo: not for DELETE; expected GET"), std::string::npos);
  // Methods that mostly have a body, but need not.
  for (const char* other : {"PUT", "PATCH"}) {
    const std::string put = answer(fmt::format("{} /health HTTP/1.1", other));
    EXPECT_TRUE(put.starts_with("HTTP/1.1 405 ")) << put;
    EXPECT_NE(put.find("\r\nAllow: GET, HEAD, OPTIONS\r\n"), std::string::npos) << put;
    const std::string nowhere = answer(fmt::format("{} /elsewhere HTTP/1.1", other));
    EXPECT_TRUE(nowhere.starts_with("HTTP/1.1 404 ")) << nowhere;
  }
}

// HTTP/1.0 knows no chunks.
TEST_F(HttpServerTest, AnswersOldClientsWithoutChunks) {
  Start();
  for (const bool stream : {false, true}) {
    const std::string body = Completion({{"stream", stream}});
    const std::string answer = SendRaw(server_->port(),
                                       HeadOf("POST /v1/completions HTTP/1.0",
                                              fmt::format("Content-Length: {}\r\n", body.size())) +
                                           body,
                                       Then::kWait);
    const size_t end = answer.find("\r\n\r\n");
    ASSERT_NE(end, std::string::npos) << answer;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos) << answer;
    const std::string text = answer.substr(end + 4);
    if (stream) {
      EXPECT_EQ(Events(text).back(), "[DONE]");
    } else {
      EXPECT_EQ(json::parse(text)["choices"][0]["text"], "hello hel");
    }
  }
  EXPECT_TRUE(Quiet());
}

TEST_F(HttpServerTest, SurvivesDamagedRequests) {
  Start();
  const std::string body = Completion({{"stream", true}, {"stop", {"x"}}});
  const std::string good = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
  std::mt19937 random(21);
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 3 && !bad.empty(); ++i) {
      const size_t place = random() % bad.size();
      if (round % 3 == 0) bad[place] = static_cast<char>(random());
      if (round % 3 == 1) bad.erase(place, random() % 20);
      if (round % 3 == 2) bad.resize(place);
    }
    SendRaw(server_->port(), bad, Then::kEnd);
  }
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
}

}  // namespace
}  // namespace trimtab

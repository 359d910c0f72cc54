#include "tools/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/serve/fake_engine.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(engine_, Model(), options);
  }

  ServedModel Model() {
    return {.name = "echo",
            .tokenizer = tokenizer_.get(),
            .chat = &chat_,
            .limits = engine_.limits(),
            .vocab_size = engine_.vocab_size()};
  }

  std::string Url(const std::string& path) const {
    return fmt::format("http://127.0.0.1:{}{}", server_->port(), path);
  }

  /// What curl prints: the body, then the status on a line of its own.
  Outcome Curl(const std::string& path, const std::string& flags = "") const {
    return Shell(
        fmt::format("curl -sS -N --max-time 20 -w '\\n%{{http_code}}' {} '{}'", flags, Url(path)));
  }

  struct Reply {
    int status = 0;
    std::string body;
    json parsed() const { return json::parse(body); }
  };
  Reply Split(const Outcome& outcome) const {
    const size_t line = outcome.output.rfind('\n');
    return {std::stoi(outcome.output.substr(line + 1)), outcome.output.substr(0, line)};
  }

  Reply Get(const std::string& path, const std::string& flags = "") const {
    return Split(Curl(path, flags));
  }

  Reply Post(const std::string& path, const std::string& body,
             const std::string& flags = "") const {
    const std::string file = fmt::format("{}/body.{}", folder_, ++bodies_);
    WriteBytes(file, body);
    return Split(Curl(path, fmt::format("{} --data-binary @{}", flags, file)));
  }

  /// Waits until the engine has nothing to do.
  bool Quiet() const {
    for (int i = 0; i < 200; ++i) {
      if (Get("/metrics").body.find("\ntrimtab_sequences_running 0\n") != std::string::npos) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  std::string folder_ = ScratchFolder();
  mutable std::atomic<int> bodies_ = 0;
  FakeEngine engine_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  ChatTemplate chat_{"plain", *tokenizer_};
  std::unique_ptr<HttpServer> server_;
};

std::string Completion(json more = json::object()) {
  json body = {{"model", "echo"}, {"prompt", "hello "}, {"max_tokens", 9}};
  body.update(more);
  return body.dump();
}

/// The data of a stream's events.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  std::istringstream lines(body);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("data: ")) events.push_back(line.substr(6));
  }
  return events;
}

TEST_F(HttpServerTest, Completes) {
  Start();
  const Reply reply = Post("/v1/completions", Completion());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json body = reply.parsed();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "hello hel");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 9);
  EXPECT_EQ(
      Post("/v1/completions", Completion({{"prompt", {104, 105}}})).parsed()["choices"][0]["text"],
      "hihihihih");
}

TEST_F(HttpServerTest, StreamsWhatItAnswersWhole) {
  Start();
  const Reply reply =
      Post("/v1/completions",
           Completion({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(reply.status, 200);
  const std::vector<std::string> events = Events(reply.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 9);
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    text += json::parse(events[i])["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "hello hel");
  EXPECT_EQ(json::parse(events[events.size() - 3])["choices"][0]["finish_reason"], "length");
}

TEST_F(HttpServerTest, Chats) {
  Start();
  json body = {{"model", "echo"},
               {"messages",
                {{{"role", "system"}, {"content", "Be kind."}},
                 {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}}}},
               {"max_tokens", 10},
               {"logprobs", true},
               {"top_logprobs", 2}};
  const Reply reply = Post("/v1/chat/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choice = reply.parsed()["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Be kind.\n\n");
  EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "B");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"], json({66}));
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"][1]["token"], "C");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 10u);

  body["stream"] = true;
  const std::vector<std::string> events = Events(Post("/v1/chat/completions", body.dump()).body);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(events[1])["object"], "chat.completion.chunk");
  std::string streamed;
  for (size_t i = 1; i + 1 < events.size(); ++i) {
    streamed += json::parse(events[i])["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, "Be kind.\n\n");
  // The fake repeats its prompt, whose second "User:" ends the answer.
  body = {{"model", "echo"}, {"messages", {{{"role", "user"}, {"content", "Hi\nUser: me"}}}}};
  const json whole = Post("/v1/chat/completions", body.dump()).parsed()["choices"][0];
  EXPECT_EQ(whole["message"]["content"], "User: Hi");
  EXPECT_EQ(whole["finish_reason"], "stop");
}

TEST_F(HttpServerTest, EndsAtStopStrings) {
  Start();
  for (const bool stream : {false, true}) {
    const Reply reply =
        Post("/v1/completions",
             Completion({{"max_tokens", 400}, {"stop", {"lo h", "zz"}}, {"stream", stream}}));
    std::string text;
    if (stream) {
      for (const std::string& event : Events(reply.body)) {
        if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"];
      }
    } else {
      text = reply.parsed()["choices"][0]["text"];
    }
    EXPECT_EQ(text, "hel");
  }
  EXPECT_TRUE(Quiet());
}

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
      {"/v1/completions", "{}", 400, "$.model"},
      {"/v1/completions", R"({"model": "gpt-4", "prompt": "x"})", 404, "expected 'echo'"},
      {"/v1/completions", R"({"model": "echo"})", 400, "$.prompt"},
      {"/v1/completions", Completion({{"prompt", {1, 257}}}), 400, "token ids below 257"},
      {"/v1/completions", Completion({{"prompt", json::array()}}), 400, "$.prompt"},
      {"/v1/completions", Completion({{"prompt", {"a", "b"}}}), 400, "$.prompt"},
      {"/v1/completions", Completion({{"temperature", -1}}), 400, "$.temperature"},
      {"/v1/completions", Completion({{"temperatur", 1}}), 400, "did you mean 'temperature'"},
      {"/v1/completions", Completion({{"top_p", 0}}), 400, "$.top_p"},
      {"/v1/completions", Completion({{"max_tokens", 0}}), 400, "$.max_tokens"},
      {"/v1/completions", Completion({{"max_tokens", "9"}}), 400, "$.max_tokens"},
      {"/v1/completions", Completion({{"n", 2}}), 400, "$.n: expected 1"},
      {"/v1/completions", Completion({{"echo", true}}), 400, "$.echo: expected false"},
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
      {"/v1/chat/completions",
       R"({"model": "echo", "messages": [{"role": "assistant", "content": ""}]})", 400,
       "messages[0].role: expected 'user'"},
      {"/v1/chat/completions",
       R"({"model": "echo", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       400, "$.messages[0].content[0].type"},
      {"/v1/embeddings", "{}", 404, "no such path"},
  };
  for (const BadRequest& bad : cases) {
    const Reply reply = Post(bad.path, bad.body);
    EXPECT_EQ(reply.status, bad.status) << bad.body << reply.body;
    const std::string message = reply.parsed()["error"]["message"];
    EXPECT_TRUE(message.find(bad.message) != std::string::npos) << bad.body << ": " << message;
  }
  EXPECT_EQ(Get("/v1/completions").status, 404);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
}

TEST_F(HttpServerTest, EndsTheRequestOfAClientThatLeaves) {
  engine_.step_time = std::chrono::milliseconds(20);
  Start();
  for (const bool stream : {false, true}) {
    WriteBytes(folder_ + "/body", Completion({{"max_tokens", 400}, {"stream", stream}}));
    const Outcome outcome = Shell(fmt::format(
        "curl -sS -N --max-time 0.5 --data-binary @{}/body '{}'", folder_, Url("/v1/completions")));
    EXPECT_EQ(outcome.status, 28);  // curl's own time limit
    EXPECT_TRUE(Quiet());
  }
  const std::string metrics = Get("/metrics").body;
  EXPECT_NE(metrics.find("trimtab_requests_aborted_total 2\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("trimtab_requests_in_flight 0\n"), std::string::npos);
}

TEST_F(HttpServerTest, AnswersManyAtOnceAndRefusesMore) {
  engine_.step_time = std::chrono::milliseconds(5);
  Start({.max_requests = 8});
  std::vector<std::thread> threads;
  std::atomic<int> answered = 0;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      const std::string prompt = fmt::format("client {} ", i);
      const Reply reply =
          Post("/v1/completions", Completion({{"prompt", prompt}, {"max_tokens", 100}}));
      if (reply.status == 503) {
        ++refused;
        return;
      }
      ASSERT_EQ(reply.status, 200) << reply.body;
      std::string expected;
      while (expected.size() < 100) expected += prompt;
      EXPECT_EQ(reply.parsed()["choices"][0]["text"], expected.substr(0, 100));
      ++answered;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered + refused, 24);
  EXPECT_GE(answered, 8);
  EXPECT_TRUE(Quiet());
}

TEST_F(HttpServerTest, AsksForItsKey) {
  Start({.api_key = "sesame"});
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesam'").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesame'").status, 200);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 401);
}

TEST_F(HttpServerTest, ShowsItsModelAndItsCounts) {
  Start();
  EXPECT_EQ(Get("/v1/models").parsed()["data"][0]["id"], "echo");
  EXPECT_EQ(Get("/v1/models").parsed()["data"][0]["max_model_len"], 512);
  Post("/v1/completions", Completion());
  const std::string metrics = Get("/metrics").body;
  for (const char* line :
       {"trimtab_generated_tokens_total 9\n",
        "trimtab_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n",
        "trimtab_time_to_first_token_seconds_count 1\n",
        "trimtab_request_seconds_bucket{le=\"+Inf\"} 1\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  }
}

TEST_F(HttpServerTest, DrainsAndCancels) {
  engine_.step_time = std::chrono::milliseconds(20);
  Start();
  Reply reply;
  std::thread client([&] {
    reply = Post("/v1/completions", Completion({{"max_tokens", 60}, {"stream", true}}));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  server_->Drain();
  EXPECT_NE(Curl("/health").status, 0);  // nobody listens any more
  client.join();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("[DONE]"), std::string::npos);
  for (int i = 0; i < 200 && !server_->finished(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(server_->finished());

  Start();
  std::thread cancelled([&] {
    reply = Post("/v1/completions", Completion({{"max_tokens", 400}, {"stream", true}}));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  server_->Cancel();
  cancelled.join();
  EXPECT_NE(reply.body.find("the server is stopping"), std::string::npos) << reply.body;
  EXPECT_EQ(Post("/v1/completions", Completion()).parsed()["error"]["message"],
            "the server is stopping");
}

TEST_F(HttpServerTest, TellsWhenTheEngineFails) {
  Start();
  engine_.broken = true;
  const Reply reply = Post("/v1/completions", Completion({{"stream", true}}));
  EXPECT_NE(reply.body.find("the engine failed: a wheel came off"), std::string::npos);
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 503);
  EXPECT_EQ(server_->failure(), "the engine failed: a wheel came off");
}

TEST_F(HttpServerTest, EndsRequestsThatTakeTooLong) {
  engine_.step_time = std::chrono::milliseconds(20);
  Start({.request_timeout_s = 0.3});
  const Reply reply = Post("/v1/completions", Completion({{"max_tokens", 400}}));
  EXPECT_NE(reply.body.find("the request took too long"), std::string::npos) << reply.body;
  EXPECT_TRUE(Quiet());
}

/// Sends bytes as they are and reads until the server closes, or a second has gone by.
void SendRaw(int port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval second = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    static_cast<void>(sent);
    ::shutdown(fd, SHUT_WR);
    char buffer[4096];
    while (::recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
  }
  ::close(fd);
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
    SendRaw(server_->port(), bad);
  }
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
}

}  // namespace
}  // namespace trimtab

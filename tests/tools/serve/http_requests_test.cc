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

TEST_F(HttpServerTest, AsksForItsKey) {
  Start({.api_key = "sesame"});
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesam'").status, 401);
  EXPECT_EQ(Get("/v1/models", "-H 'Authorization: Bearer sesame'").status, 200);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 401);
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

// How requests and the server end: clients that leave, limits, draining, failures.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <string_view>

#include "engine/base/error.h"
#include "tests/tools/serve/http_server_fixture.h"

namespace trimtab {
namespace {

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

/// A client by hand, which may say as little as it likes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool Send(std::string_view text) const {
    return connected_ && send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text);
  }
  /// All that comes until the server closes.
  std::string Receive() const {
    std::string answer;
    char part[512];
    for (ssize_t size = 0; (size = recv(socket_, part, sizeof(part), 0)) > 0;) {
      answer.append(part, static_cast<size_t>(size));
    }
    return answer;
  }

 private:
  int socket_;
  bool connected_ = false;
};

constexpr std::string_view kHealthRequest =
    "GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";

// More connections at once than are accepted meanwhile: none is dropped.
TEST_F(HttpServerTest, TakesClientsThatComeTogether) {
  Start();
  std::deque<RawClient> clients;
  for (int i = 0; i < 200; ++i) clients.emplace_back(server_->port());
  for (const RawClient& client : clients) ASSERT_TRUE(client.Send(kHealthRequest));
  for (const RawClient& client : clients) {
    const std::string answer = client.Receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  }
}

// Clients that begin a request and say no more keep nobody else waiting.
TEST_F(HttpServerTest, AnswersBesideClientsThatSayNothing) {
  Start({.max_requests = 4});
  std::deque<RawClient> clients;
  const std::string_view begun = kHealthRequest.substr(0, 20);
  for (int i = 0; i < 100; ++i) clients.emplace_back(server_->port());
  for (const RawClient& client : clients) ASSERT_TRUE(client.Send(begun));
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
  // Each was still heard: nobody was cut off to make room.
  for (const RawClient& client : clients) {
    ASSERT_TRUE(client.Send(kHealthRequest.substr(begun.size())));
  }
  for (const RawClient& client : clients) {
    const std::string answer = client.Receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  }
}

// Nobody is served any more, so a request that only begins to come is not waited for.
TEST_F(HttpServerTest, EndsBesideAClientThatNeverFinishesItsRequest) {
  Start();
  const RawClient silent(server_->port());
  ASSERT_TRUE(silent.Send(kHealthRequest.substr(0, 20)));
  const RawClient trickling(server_->port());
  ASSERT_TRUE(trickling.Send("POST /v1/completions HTTP/1.1\r\nContent-Length: 4000\r\n\r\n{"));
  EXPECT_EQ(Get("/health").status, 200);
  server_->Drain();
  for (int i = 0; i < 400 && !server_->finished(); ++i) {
    trickling.Send("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  EXPECT_TRUE(server_->finished());
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
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 503);
  client.join();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("[DONE]"), std::string::npos);
  for (int i = 0; i < 200 && !server_->finished(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(server_->finished());
  EXPECT_NE(Curl("/health").status, 0);  // nobody listens any more

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

TEST_F(HttpServerTest, EndsOnlyTheRequestThatFails) {
  Start();
  const Reply whole = Post("/v1/completions", Completion({{"prompt", {97, 98, 255}}}));
  EXPECT_NE(whole.body.find(R"("message":"a tooth came off")"), std::string::npos) << whole.body;
  const Reply stream =
      Post("/v1/completions", Completion({{"prompt", {97, 98, 255}}, {"stream", true}}));
  const std::vector<std::string> events = Events(stream.body);
  ASSERT_GE(events.size(), 2u) << stream.body;  // the text before, and the end
  EXPECT_EQ(nlohmann::json::parse(events.back())["error"]["message"], "a tooth came off");
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
  EXPECT_EQ(Get("/health").status, 200);
}

/// Some of its ids have no bytes: looking for these is a fault.
class FaultyTokenizer : public Tokenizer {
 public:
  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    bytes_->Encode(text, names, tokens);
  }
  std::string Decode(std::span<const int32_t> tokens) const override {
    return bytes_->Decode(tokens);
  }
  std::string BytesOf(int32_t token) const override {
    if (token == '?') throw InputError("a token without bytes");
    return bytes_->BytesOf(token);
  }
  std::optional<int32_t> SpecialId(std::string_view) const override { return std::nullopt; }
  std::vector<int32_t> prompt_prefix() const override { return {}; }
  int64_t vocab_size() const override { return bytes_->vocab_size(); }
  int32_t eod_id() const override { return bytes_->eod_id(); }
  std::vector<std::string> special_names() const override { return {}; }
  ChatFormat chat_format() const override { return {}; }
  std::string name() const override { return "faulty"; }
  std::vector<TokenizerFile> files() const override { return {}; }

 private:
  std::unique_ptr<Tokenizer> bytes_ = MakeByteTokenizer();
};

TEST_F(HttpServerTest, SurvivesWhatIsThrownWhileItWrites) {
  tokenizer_ = std::make_unique<FaultyTokenizer>();
  Start();
  for (const bool stream : {false, true}) {
    const Reply reply = Post("/v1/completions", Completion({{"prompt", "a?"}, {"stream", stream}}));
    EXPECT_NE(reply.body.find("internal error"), std::string::npos) << reply.body;
  }
  EXPECT_TRUE(Quiet());
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 200);
}

TEST_F(HttpServerTest, EndsRequestsThatTakeTooLong) {
  engine_.step_time = std::chrono::milliseconds(20);
  Start({.request_timeout_s = 0.3});
  const Reply reply = Post("/v1/completions", Completion({{"max_tokens", 400}}));
  EXPECT_NE(reply.body.find("the request took too long"), std::string::npos) << reply.body;
  EXPECT_TRUE(Quiet());
}

}  // namespace
}  // namespace trimtab

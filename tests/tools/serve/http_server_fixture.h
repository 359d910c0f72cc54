// A server over the fake engine, and curl as its client.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/serve/fake_engine.h"
#include "tests/tools/shell.h"
#include "tools/serve/http_server.h"

namespace trimtab {

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(engine_, Model(), options);
  }

  ServedModel Model() {
    return {.name = "echo",
            .tokenizer = tokenizer_.get(),
            .end_tokens = end_tokens_,
            .chat = &chat_,
            .grammars = &grammars_,
            .limits = engine_.limits(),
            .vocab_size = engine_.vocab_size(),
            .embedding_size = 2,
            .strict = strict_};
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
    nlohmann::json parsed() const { return nlohmann::json::parse(body); }
  };
  Reply Split(const Outcome& outcome) const {
    const size_t line = outcome.output.rfind('\n');
    return {std::stoi(outcome.output.substr(line + 1)), outcome.output.substr(0, line)};
  }

  Reply Get(const std::string& path, const std::string& flags = "") const {
    return Split(Curl(path, flags));
  }

  /// The head of an answer, without its body.
  std::string Head(const std::string& path, const std::string& flags = "") const {
    return Shell(fmt::format("curl -sS --max-time 20 -o /dev/null -D - {} '{}'", flags, Url(path)))
        .output;
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
  GrammarCompiler grammars_{std::make_shared<const TokenVocabulary>(*tokenizer_, 257)};
  std::vector<int32_t> end_tokens_;
  bool strict_ = false;
  ChatTemplate chat_{"plain", *tokenizer_};
  std::unique_ptr<HttpServer> server_;
};

/// A request that the fake completes with "hello hel", changed by `more`.
inline std::string Completion(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"model", "echo"}, {"prompt", "hello "}, {"max_tokens", 9}};
  body.update(more);
  return body.dump();
}

/// A chat's request, changed by `more`: "plain" writes its prompt as "User: hello\nAssistant:".
inline std::string Chat(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}},
                         {"max_tokens", 9}};
  body.update(more);
  return body.dump();
}

inline nlohmann::json Weather() {
  return {
      {"type", "function"},
      {"function",
       {{"name", "weather"},
        {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}};
}

/// The data of a stream's events.
inline std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  std::istringstream lines(body);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("data: ")) events.push_back(line.substr(6));
  }
  return events;
}

}  // namespace trimtab

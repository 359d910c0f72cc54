// HttpServer: OpenAI's API over HTTP, from one engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/infer/api/engine.h"
#include "tools/serve/api/api_request.h"

namespace trimtab {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;                        // 0: one that is free
  int64_t max_requests = 64;                  // generations at once, waiting ones too
  int64_t max_body_bytes = int64_t{4} << 20;  // of a request
  double request_timeout_s = 600;             // of a generation
  std::string api_key = {};                   // that clients must show; empty: none
  std::string cors_origin = {};  // of pages that may use it; "*": all; empty: its own alone
};

/// Answers the routes of routes.h. Every request has a thread of its own, one more steps the
/// engine; a client that leaves ends its request.
class HttpServer {
 public:
  /// Listens from now on. `engine`, and what `model` points to, must outlive this. Throws
  /// EnvironmentError when it cannot listen there.
  HttpServer(Engine& engine, ServedModel model, HttpServerOptions options);
  /// Cancels what still runs.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port it listens on.
  int port() const;
  /// Takes no more requests; those that it has go on. It says so to who asks, up to their end.
  void Drain();
  /// Ends all requests now.
  void Cancel();
  /// Whether a drain is over: every request has been answered.
  bool finished() const;
  /// Why the engine no longer works; empty while it does.
  std::string failure() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trimtab

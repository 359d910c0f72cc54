// PlainServer: HTTP over one port; a handler answers.
#pragma once

#include <httplib.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tools/serve/request_head.h"

namespace trimtab {

/// Answers the requests of a server. Called from a thread per connection, several at once.
class HttpHandler : public PathTable {
 public:
  /// Returns headers that every answer has.
  virtual httplib::Headers DefaultHeaders() const { return {}; }
  /// Answers before anything else is looked at, and returns true; or returns false.
  virtual bool Before(const httplib::Request& request, httplib::Response& response) = 0;
  /// Answers GET and HEAD of a path. A status of 404 without a body gets its words from WhyNot.
  virtual void Get(const httplib::Request& request, httplib::Response& response) = 0;
  /// Answers POST of a path, whose whole body has come.
  virtual void Post(const httplib::Request& request, const std::string& body,
                    httplib::Response& response) = 0;
  /// Called when an answer has been sent.
  virtual void OnAnswer(const httplib::Request& request, const httplib::Response& response) = 0;
};

struct PlainServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 0;                           // 0: one that is free
  int64_t connections = 64;                   // that have a thread each; more wait
  int64_t max_body_bytes = int64_t{1} << 20;  // of a request
};

/// Sets an error as OpenAI's API writes it.
void SetError(httplib::Response& response, int status, const std::string& message,
              const char* type);

class PlainServer {
 public:
  /// Listens from now on. `handler` must outlive this. Throws EnvironmentError when it cannot
  /// listen there.
  PlainServer(HttpHandler& handler, PlainServerOptions options);
  /// Stops.
  ~PlainServer();
  PlainServer(const PlainServer&) = delete;
  PlainServer& operator=(const PlainServer&) = delete;

  /// The port it listens on.
  int port() const;
  /// Takes no more connections, and returns when those that it has are answered.
  void Stop();
  /// Returns true once it has stopped.
  bool finished() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trimtab

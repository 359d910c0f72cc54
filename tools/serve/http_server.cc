#include "tools/serve/http_server.h"

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/log.h"
#include "engine/base/signals_blocked.h"
#include "tools/cli/version.h"
#include "tools/serve/api/tokenize.h"
#include "tools/serve/cors.h"
#include "tools/serve/generation.h"
#include "tools/serve/ignored_fields.h"
#include "tools/serve/openapi.h"
#include "tools/serve/page/chat_page.h"
#include "tools/serve/plain_server.h"
#include "tools/serve/reply/json_text.h"
#include "tools/serve/routes.h"

namespace trimtab {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

/// Connections beyond those of generations that have a thread each: most say nothing most of the
/// time.
constexpr int64_t kSpareConnections = 1024;

void SetJson(Response& response, const json& body) {
  response.set_content(JsonText(body) + "\n", "application/json");
}

int64_t UnixTime() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

class HttpServer::Impl : private HttpHandler {
 public:
  Impl(Engine& engine, ServedModel model, HttpServerOptions options)
      : model_(std::move(model)),
        options_(std::move(options)),
        loop_(engine),
        server_(*this, {.host = options_.host,
                        .port = options_.port,
                        .connections = options_.max_requests + kSpareConnections,
                        .max_body_bytes = options_.max_body_bytes}) {}

  ~Impl() override {
    loop_.Cancel("the server is stopping");
    Drain();
    drain_.join();
  }

  int port() const { return server_.port(); }
  bool finished() const { return server_.finished(); }
  std::string failure() const { return loop_.failure(); }
  void Cancel() { loop_.Cancel("the server is stopping"); }

  /// Waits for running answers, then stops; new requests are refused meanwhile.
  void Drain() {
    if (draining_.exchange(true)) return;
    drain_ = std::thread([this] {
      const SignalsBlocked blocked;
      while (const int64_t now = in_flight_) in_flight_.wait(now);
      server_.Stop();
    });
  }

 private:
  std::string MethodsOf(const std::string& path) const override { return trimtab::MethodsOf(path); }

  std::string WhyNot(const std::string& path) const override {
    const Route* route = FindRoute(path);
    return route == nullptr ? "no such path" : fmt::format("not served here; {}", route->summary);
  }

  httplib::Headers DefaultHeaders() const override { return CorsHeaders(options_.cors_origin); }

  bool Before(const Request& request, Response& response) override {
    if (request.method == "OPTIONS") {
      AnswerPreflight(request, options_.cors_origin, response);
      return true;
    }
    if (Authorised(request)) return false;
    response.set_header("WWW-Authenticate", "Bearer");
    SetError(response, 401,
             "expected the header 'Authorization: Bearer KEY' with the key of "
             "this server",
             "authentication_error");
    return true;
  }

  void OnAnswer(const Request& request, const Response& response) override {
    stats_.CountAnswer(LabelOf(request.path), response.status);
  }

  bool Authorised(const Request& request) const {
    const Route* route = FindRoute(request.path);
    if (options_.api_key.empty() || (route != nullptr && route->open())) return true;
    return ShowsKey(request.get_header_value("Authorization"), options_.api_key);
  }

  void Get(const Request& request, Response& response) override {
    const Route* route = FindRoute(request.path);
    if (route == nullptr || route->post() || route->handler == Handler::kRefused) {
      response.status = 404;  // the error handler says more
      return;
    }
    Show(*route, request, response);
  }

  void Show(const Route& route, const Request& request, Response& response) {
    switch (route.handler) {
      case Handler::kPage: {
        const ChatPage page = MakeChatPage();
        response.set_header("Content-Security-Policy", page.policy);
        response.set_header("X-Content-Type-Options", "nosniff");
        response.set_header("Referrer-Policy", "no-referrer");
        return response.set_content(page.html, "text/html; charset=utf-8");
      }
      case Handler::kHealth:
      case Handler::kPing: {
        const std::string failure = loop_.failure();
        if (failure.empty() && !draining_) return SetJson(response, {{"status", "ok"}});
        return SetError(response, 503, failure.empty() ? "draining" : failure, "server_error");
      }
      case Handler::kServerVersion:
        return SetJson(response, {{"version", kVersion}});
      case Handler::kMetrics:
        return response.set_content(stats_.Text(loop_.metrics(), in_flight_),
                                    "text/plain; version=0.0.4");
      case Handler::kOpenApi:
        return SetJson(response, OpenApi(model_.name, !options_.api_key.empty()));
      case Handler::kModels:
        return SetJson(response, {{"object", "list"}, {"data", {ModelJson()}}});
      default: {
        const std::string name = NameIn(route, request.path);
        if (name == model_.name) return SetJson(response, ModelJson());
        return SetError(response, 404,
                        fmt::format("'{}' is not served here; expected '{}'", name, model_.name),
                        "invalid_request_error");
      }
    }
  }

  json ModelJson() const {
    return {{"id", model_.name},
            {"object", "model"},
            {"created", created_},
            {"owned_by", "trimtab"},
            {"max_model_len", model_.limits.sequence_length}};
  }

  void Post(const Request& request, const std::string& body, Response& response) override {
    const Route* route = FindRoute(request.path);
    if (route == nullptr || !route->post()) {
      response.status = 404;  // the error handler says more
      return;
    }
    try {
      if (route->handler == Handler::kTokenize) return SetJson(response, Tokenize(body, model_));
      if (route->handler == Handler::kDetokenize) {
        return SetJson(response, Detokenize(body, model_));
      }
      Generate(route->endpoint, request, body, response);
    } catch (const UnknownModelError& error) {
      SetError(response, 404, error.what(), "invalid_request_error");
    } catch (const InputError& error) {
      SetError(response, 400, error.what(), "invalid_request_error");
    } catch (const UsageError& error) {
      SetError(response, 400, error.what(), "invalid_request_error");
    }
  }

  /// What the engine's streams are told by: a name of the kind of answer, and the client's own or a
  /// number.
  std::string IdOf(const ApiRequest& request) {
    const char* kind = request.endpoint == kChat         ? "chatcmpl"
                       : request.endpoint == kResponses  ? "resp"
                       : request.endpoint == kEmbeddings ? "embd"
                                                         : "cmpl";
    if (!request.request_id.empty()) return fmt::format("{}-{}", kind, request.request_id);
    return fmt::format("{}-{:x}-{}", kind, created_, ++ids_);
  }

  void Generate(Endpoint endpoint, const Request& request, const std::string& body,
                Response& response) {
    auto counted = std::make_unique<Counted>(in_flight_);
    if (counted->now() > options_.max_requests || draining_) {
      response.set_header("Retry-After", "1");
      return SetError(response, 503,
                      draining_ ? "the server is draining" : "too many requests at once",
                      "server_error");
    }
    const ApiRequest parsed = ParseApiRequest(endpoint, body, model_);
    if (const std::string names = ignored_.Tell(parsed.ignored); !names.empty()) {
      response.set_header("X-Trimtab-Ignored", names);
    }
    auto generation = std::make_shared<Generation>(
        parsed, *model_.tokenizer,
        ReplyHead{.model = model_.name, .id = IdOf(parsed), .created = UnixTime()},
        std::move(counted), stats_);
    if (const Refusal refusal = generation->Submit(loop_); !refusal.reason.empty()) {
      if (refusal.busy || draining_) response.set_header("Retry-After", "1");
      const bool here = refusal.busy || draining_ || !loop_.failure().empty();
      return SetError(response, here ? 503 : 400, refusal.reason,
                      here ? "server_error" : "invalid_request_error");
    }
    // The answer is written here while it grows, whole or streamed: only the writer notices a
    // client that has left.
    const auto write = [this, generation](size_t, httplib::DataSink& sink) {
      return generation->Write(sink, options_.request_timeout_s);
    };
    const char* type = generation->stream() ? "text/event-stream" : "application/json";
    if (generation->stream()) response.set_header("Cache-Control", "no-cache");
    response.status = 200;  // the library would take a range for asked, which a POST cannot
    // How long it will be nobody knows before. HTTP/1.0 has no chunks: there it ends with the
    // connection.
    if (request.version == "HTTP/1.0") {
      response.set_content_provider(type, write);
    } else {
      response.set_chunked_content_provider(type, write);
    }
  }

  ServedModel model_;
  HttpServerOptions options_;
  ServerStats stats_;
  IgnoredFields ignored_;
  EngineLoop loop_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> in_flight_ = 0;
  std::atomic<int64_t> ids_ = 0;
  int64_t created_ = UnixTime();
  PlainServer server_;  // asks this for answers as soon as it is there
  std::thread drain_;   // waits for the last answer
};

HttpServer::HttpServer(Engine& engine, ServedModel model, HttpServerOptions options)
    : impl_(std::make_unique<Impl>(engine, std::move(model), std::move(options))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->port(); }
void HttpServer::Drain() { impl_->Drain(); }
void HttpServer::Cancel() { impl_->Cancel(); }
bool HttpServer::finished() const { return impl_->finished(); }
std::string HttpServer::failure() const { return impl_->failure(); }

}  // namespace trimtab

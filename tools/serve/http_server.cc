#include "tools/serve/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/log.h"
#include "engine/base/signals_blocked.h"
#include "tools/serve/answer.h"
#include "tools/serve/connection_threads.h"
#include "tools/serve/counted.h"
#include "tools/serve/end_reading.h"
#include "tools/serve/engine_loop.h"
#include "tools/serve/request_head.h"
#include "tools/serve/server_stats.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;
using httplib::Request;
using httplib::Response;
using nlohmann::json;

/// How soon a client that left is noticed while nothing is written to it.
constexpr auto kPoll = std::chrono::milliseconds(100);
/// Connections beyond those of generations that have a thread each: most say nothing most of the
/// time.
constexpr int64_t kSpareConnections = 1024;
constexpr int kKeepAliveSeconds = 2;
constexpr int kSocketTimeoutSeconds = 10;
/// Connections that wait to be accepted. With the library's own 5, clients that come together are
/// dropped, and try again after a second.
constexpr int kWaitingConnections = 1024;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void SetError(Response& response, int status, const std::string& message, const char* type) {
  response.status = status;
  response.set_content(ErrorBody(message, type), "application/json");
}

/// A generation and all that its answer needs; kept until the answer is written.
struct Generation {
  std::unique_ptr<Counted> counted;
  bool stream = false;
  Answer answer;
  AnswerWriter writer;
  Clock::time_point start = Clock::now();
  std::unique_ptr<Ticket> ticket = nullptr;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Engine& engine, ServedModel model, HttpServerOptions options)
      : model_(std::move(model)), options_(std::move(options)), loop_(engine) {
    Configure();
    Route();
    const bool any = options_.port == 0;
    port_ = any ? http_.bind_to_any_port(options_.host)
            : http_.bind_to_port(options_.host, static_cast<int>(options_.port))
                ? static_cast<int>(options_.port)
                : -1;
    if (port_ < 0) {
      throw EnvironmentError(
          fmt::format("cannot listen on {} port {}; expected an address of this "
                      "machine and a port that nobody else uses",
                      options_.host, options_.port));
    }
    ::listen(listener_, kWaitingConnections);  // again, with more places
    thread_ = std::thread([this] {
      http_.listen_after_bind();
      finished_ = true;
    });
    while (!http_.is_running() && !finished_) std::this_thread::yield();
  }

  ~Impl() {
    loop_.Cancel("the server is stopping");
    Drain();
    drain_.join();
    thread_.join();
  }

  int port() const { return port_; }
  bool finished() const { return finished_; }
  std::string failure() const { return loop_.failure(); }
  void Cancel() { loop_.Cancel("the server is stopping"); }

  /// Others are answered meanwhile that nobody is served any more.
  void Drain() {
    if (draining_.exchange(true)) return;
    drain_ = std::thread([this] {
      const SignalsBlocked blocked;
      while (const int64_t now = in_flight_) in_flight_.wait(now);
      http_.stop();
      // The library would wait for requests that have begun to come, byte by byte if need be.
      EndReading(port_, finished_);
    });
  }

 private:
  void Configure() {
    const auto connections = static_cast<size_t>(options_.max_requests + kSpareConnections);
    http_.new_task_queue = [connections] { return new ConnectionThreads(connections); };
    http_.set_payload_max_length(static_cast<size_t>(options_.max_body_bytes));
    http_.set_keep_alive_timeout(kKeepAliveSeconds);
    // The library forgets what came behind a request before its answer, and would take what follows
    // for the begin of another: a client that did not wait is answered once and told so.
    http_.set_keep_alive_max_count(1);
    http_.set_read_timeout(kSocketTimeoutSeconds);
    http_.set_write_timeout(kSocketTimeoutSeconds);
    http_.set_tcp_nodelay(true);
    http_.set_socket_options([this](socket_t socket) {
      // The library's own options would let two servers share a port, and its requests.
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
      listener_ = socket;
    });
    http_.set_pre_routing_handler([this](const Request& request, Response& response) {
      if (!Authorised(request)) {
        response.set_header("WWW-Authenticate", "Bearer");
        SetError(response, 401,
                 "expected the header 'Authorization: Bearer KEY' with the key of "
                 "this server",
                 "authentication_error");
        return httplib::Server::HandlerResponse::Handled;
      }
      const HeadFault fault = FaultOfLength(request, options_.max_body_bytes, BodyState::kComing);
      if (fault.status == 0) return httplib::Server::HandlerResponse::Unhandled;
      if (fault.status == 405) response.set_header("Allow", MethodsOf(request.path));
      SetError(response, fault.status, fault.message, "invalid_request_error");
      return httplib::Server::HandlerResponse::Handled;
    });
    http_.set_expect_100_continue_handler([this](const Request& request, Response& response) {
      constexpr int kContinue = 100;
      const HeadFault fault = FaultOfLength(request, options_.max_body_bytes, BodyState::kAwaited);
      if (fault.status == 0) return kContinue;
      SetError(response, fault.status, fault.message, "invalid_request_error");
      return fault.status;
    });
    http_.set_exception_handler([](const Request&, Response& response, std::exception_ptr failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        LogWarning("a request failed: {}", error.what());
      }
      SetError(response, 500, "internal error", "server_error");
    });
    http_.set_error_handler([this](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      const std::string methods = MethodsOf(request.path);
      if (response.status == 404 && !methods.empty()) {
        response.status = 405;
        response.set_header("Allow", methods);
      }
      SetError(response, response.status,
               MessageOf(request, response.status, options_.max_body_bytes),
               "invalid_request_error");
    });
    http_.set_logger([this](const Request& request, const Response& response) {
      stats_.CountAnswer(LabelOf(request.path), response.status);
    });
  }

  bool Authorised(const Request& request) const {
    if (options_.api_key.empty() || request.path == "/health") return true;
    return ShowsKey(request.get_header_value("Authorization"), options_.api_key);
  }

  void Route() {
    http_.Get("/health", [this](const Request&, Response& response) {
      const std::string failure = loop_.failure();
      if (!failure.empty() || draining_) {
        SetError(response, 503, failure.empty() ? "draining" : failure, "server_error");
      } else {
        response.set_content("{\"status\":\"ok\"}\n", "application/json");
      }
    });
    http_.Get("/metrics", [this](const Request&, Response& response) {
      response.set_content(stats_.Text(loop_.metrics(), in_flight_), "text/plain; version=0.0.4");
    });
    http_.Get("/v1/models", [this](const Request&, Response& response) {
      response.set_content(JsonText({{"object", "list"}, {"data", {ModelJson()}}}) + "\n",
                           "application/json");
    });
    http_.Get("/v1/models/(.+)", [this](const Request& request, Response& response) {
      const std::string name = request.matches[1];
      if (name == model_.name) {
        return response.set_content(JsonText(ModelJson()) + "\n", "application/json");
      }
      SetError(response, 404,
               fmt::format("'{}' is not served here; expected '{}'", name, model_.name),
               "invalid_request_error");
    });
    RouteGeneration("/v1/completions", Endpoint::kCompletions);
    RouteGeneration("/v1/chat/completions", Endpoint::kChat);
  }

  /// Reads the body itself: the library would take one as a form, and refuse all but short ones,
  /// where a client says so. curl does of whatever it sends.
  void RouteGeneration(const char* path, Endpoint endpoint) {
    http_.Post(path, [this, endpoint](const Request& request, Response& response,
                                      const httplib::ContentReader& read) {
      if (const HeadFault fault = FaultOfBody(request); fault.status != 0) {
        return SetError(response, fault.status, fault.message, "invalid_request_error");
      }
      const auto most = static_cast<size_t>(options_.max_body_bytes);
      std::string body;
      bool fits = true;  // a body in chunks does not say its length before
      const bool whole = read([&](const char* data, size_t size) {
        fits = size <= most - body.size();
        if (fits) body.append(data, size);
        return fits;
      });
      if (!fits) {
        return SetError(response, 413, MessageOf(request, 413, options_.max_body_bytes),
                        "invalid_request_error");
      }
      if (whole) Generate(endpoint, request, body, response);  // else the library sets a status
    });
  }

  json ModelJson() const {
    return {{"id", model_.name},
            {"object", "model"},
            {"created", created_},
            {"owned_by", "trimtab"},
            {"max_model_len", model_.limits.sequence_length}};
  }

  void Generate(Endpoint endpoint, const Request& request, const std::string& body,
                Response& response) {
    auto counted = std::make_unique<Counted>(in_flight_);
    if (counted->now() > options_.max_requests || draining_) {
      response.set_header("Retry-After", "1");
      SetError(response, 503, draining_ ? "the server is draining" : "too many requests at once",
               "server_error");
      return;
    }
    ApiRequest parsed;
    try {
      parsed = ParseApiRequest(endpoint, body, model_);
    } catch (const UnknownModelError& error) {
      return SetError(response, 404, error.what(), "invalid_request_error");
    } catch (const InputError& error) {
      return SetError(response, 400, error.what(), "invalid_request_error");
    } catch (const UsageError& error) {
      return SetError(response, 400, error.what(), "invalid_request_error");
    }
    const bool chat = endpoint == Endpoint::kChat;
    const std::string id = fmt::format("{}-{:x}-{}", chat ? "chatcmpl" : "cmpl", created_, ++ids_);
    auto generation = std::make_shared<Generation>(
        Generation{.counted = std::move(counted),
                   .stream = parsed.stream,
                   .answer = Answer(*model_.tokenizer, parsed.stop_strings, /*trim_start=*/chat),
                   .writer = AnswerWriter(parsed, *model_.tokenizer, model_.name, id, UnixTime())});
    auto outcome = loop_.Submit(std::move(parsed.generation));
    if (const auto* refusal = std::get_if<Refusal>(&outcome)) {
      if (refusal->busy) response.set_header("Retry-After", "1");
      const bool here = refusal->busy || draining_ || !loop_.failure().empty();
      SetError(response, here ? 503 : 400, refusal->reason,
               here ? "server_error" : "invalid_request_error");
      return;
    }
    generation->ticket = std::get<std::unique_ptr<Ticket>>(std::move(outcome));
    // The answer is written here while it grows, whole or streamed: only the writer notices a
    // client that has left.
    const auto write = [this, generation](size_t, httplib::DataSink& sink) {
      return Write(*generation, sink);
    };
    const char* type = generation->stream ? "text/event-stream" : "application/json";
    response.status = 200;  // the library would take a range for asked, which a POST cannot
    // How long it will be nobody knows before. HTTP/1.0 has no chunks: there it ends with the
    // connection.
    if (request.version == "HTTP/1.0") {
      response.set_content_provider(type, write);
    } else {
      response.set_chunked_content_provider(type, write);
    }
  }

  /// False ends the connection without a proper end of the answer. The library calls it where
  /// nothing catches what is thrown: that would end the process.
  bool Write(Generation& generation, httplib::DataSink& sink) {
    try {
      return WriteAnswer(generation, sink);
    } catch (const std::exception& error) {
      LogWarning("a request failed: {}", error.what());
      return Fail(generation, sink, "internal error");
    }
  }

  bool WriteAnswer(Generation& generation, httplib::DataSink& sink) {
    const auto send = [&sink](const std::string& text) {
      return text.empty() || sink.write(text.data(), text.size());
    };
    const auto limit =
        generation.start + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(options_.request_timeout_s));
    std::string whole;
    if (generation.stream && !send(generation.writer.FirstEvent())) return Abort(generation);
    Clock::time_point last{};
    Clock::time_point looked = Clock::now();
    while (!generation.answer.ended()) {
      const Ticket::News news = generation.ticket->Wait(std::min(limit, Clock::now() + kPoll));
      if (Clock::now() - looked >= kPoll) {
        if (!sink.is_writable()) return Abort(generation);
        looked = Clock::now();
      }
      CountTokens(generation, news.tokens.size(), last);
      const std::string text = generation.answer.Add(news.tokens, news.finish);
      if (generation.stream) {
        if (!send(generation.writer.Event(generation.answer, text))) return Abort(generation);
      } else {
        whole += text;
      }
      if (generation.answer.ended()) break;
      const bool late = Clock::now() >= limit;
      if (news.failure.empty() && !late) continue;
      return Fail(generation, sink, late ? "the request took too long" : news.failure);
    }
    generation.ticket.reset();
    stats_.AddRequest(SecondsSince(generation.start));
    if (!send(generation.stream ? generation.writer.LastEvents(generation.answer)
                                : generation.writer.Body(generation.answer, whole))) {
      return false;
    }
    sink.done();
    return true;
  }

  /// The status has been sent: the client reads what went wrong in the place of an answer.
  bool Fail(Generation& generation, httplib::DataSink& sink, const std::string& message) {
    const std::string error = ErrorBody(message, "server_error");
    const std::string text = generation.stream ? "data: " + error + "\n" : error;
    sink.write(text.data(), text.size());
    return Abort(generation);
  }

  bool Abort(Generation& generation) {
    generation.ticket.reset();
    stats_.CountAbort();
    return false;
  }

  void CountTokens(const Generation& generation, size_t count, Clock::time_point& last) {
    if (count == 0) return;
    const auto now = Clock::now();
    const bool first = last == Clock::time_point{};
    if (first) {
      stats_.AddFirstToken(std::chrono::duration<double>(now - generation.start).count());
      last = now;
    }
    stats_.AddBetweenTokens(std::chrono::duration<double>(now - last).count(), count - first);
    last = now;
  }

  static int64_t UnixTime() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  ServedModel model_;
  HttpServerOptions options_;
  ServerStats stats_;
  EngineLoop loop_;
  httplib::Server http_;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> finished_ = false;
  std::atomic<int64_t> in_flight_ = 0;
  std::atomic<int64_t> ids_ = 0;
  int64_t created_ = UnixTime();
  int port_ = -1;
  socket_t listener_ = INVALID_SOCKET;
  std::thread thread_;
  std::thread drain_;  // waits for the last answer
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

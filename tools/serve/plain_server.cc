#include "tools/serve/plain_server.h"

#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "tools/serve/connection_threads.h"
#include "tools/serve/end_reading.h"
#include "tools/serve/reply/json_text.h"

namespace trimtab {
namespace {

using httplib::Request;
using httplib::Response;

constexpr int kKeepAliveSeconds = 2;
constexpr int kSocketTimeoutSeconds = 10;
/// Connections that wait to be accepted. With the library's own 5, clients that come together are
/// dropped, and try again after a second.
constexpr int kWaitingConnections = 1024;
constexpr const char* kInvalid = "invalid_request_error";

}  // namespace

void SetError(Response& response, int status, const std::string& message, const char* type) {
  response.status = status;
  response.set_content(ErrorBody(message, type), "application/json");
}

class PlainServer::Impl {
 public:
  Impl(HttpHandler& handler, PlainServerOptions options)
      : handler_(handler), options_(std::move(options)) {
    Configure();
    SetHandlers();
    Route();
    const bool any = options_.port == 0;
    port_ = any ? http_.bind_to_any_port(options_.host)
            : http_.bind_to_port(options_.host, static_cast<int>(options_.port))
                ? static_cast<int>(options_.port)
                : -1;
    if (port_ < 0) {
      throw EnvironmentError(
          fmt::format("cannot listen on {} port {}; expected an address of this "
                      "machine and a free port",
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
    Stop();
    thread_.join();
  }

  int port() const { return port_; }
  bool finished() const { return finished_; }

  void Stop() {
    if (stops_.exchange(true)) return;
    http_.stop();
    // The library would wait for requests that have begun to come, byte by byte if need be.
    EndReading(port_, finished_);
  }

 private:
  void Configure() {
    const auto connections = static_cast<size_t>(options_.connections);
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
    http_.set_default_headers(handler_.DefaultHeaders());
  }

  void SetHandlers() {
    http_.set_pre_routing_handler([this](const Request& request, Response& response) {
      using Handled = httplib::Server::HandlerResponse;
      if (handler_.Before(request, response)) return Handled::Handled;
      const HeadFault fault = LengthFault(request, BodyState::kComing);
      if (fault.status == 0) return Handled::Unhandled;
      if (fault.status == 405) response.set_header("Allow", handler_.MethodsOf(request.path));
      SetError(response, fault.status, fault.message, kInvalid);
      return Handled::Handled;
    });
    http_.set_expect_100_continue_handler([this](const Request& request, Response& response) {
      constexpr int kContinue = 100;
      const HeadFault fault = LengthFault(request, BodyState::kAwaited);
      if (fault.status == 0) return kContinue;
      SetError(response, fault.status, fault.message, kInvalid);
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
      const std::string methods = handler_.MethodsOf(request.path);
      if (response.status == 404 && !methods.empty()) {
        response.status = 405;
        response.set_header("Allow", methods);
      }
      SetError(response, response.status, Message(request, response.status), kInvalid);
    });
    http_.set_logger([this](const Request& request, const Response& response) {
      handler_.OnAnswer(request, response);
    });
  }

  void Route() {
    http_.Get(".*", [this](const Request& request, Response& response) {
      handler_.Get(request, response);
    });
    // Reads the body itself: the library would take one as a form, and refuse all but short ones,
    // where a client says so. curl does of whatever it sends.
    http_.Post(".*", [this](const Request& request, Response& response,
                            const httplib::ContentReader& read) {
      if (const HeadFault fault = FaultOfBody(request); fault.status != 0) {
        return SetError(response, fault.status, fault.message, kInvalid);
      }
      const auto most = static_cast<size_t>(options_.max_body_bytes);
      std::string body;
      bool fits = true;  // a body in chunks does not say its length before
      const bool whole = read([&](const char* data, size_t size) {
        fits = size <= most - body.size();
        if (fits) body.append(data, size);
        return fits;
      });
      if (!fits) return SetError(response, 413, Message(request, 413), kInvalid);
      if (whole) handler_.Post(request, body, response);  // else the library sets a status
    });
  }

  HeadFault LengthFault(const Request& request, BodyState body) const {
    return FaultOfLength(request, options_.max_body_bytes, body, handler_);
  }
  std::string Message(const Request& request, int status) const {
    return MessageOf(request, status, options_.max_body_bytes, handler_);
  }

  HttpHandler& handler_;
  PlainServerOptions options_;
  httplib::Server http_;
  std::atomic<bool> stops_ = false;
  std::atomic<bool> finished_ = false;
  int port_ = -1;
  socket_t listener_ = INVALID_SOCKET;
  std::thread thread_;
};

PlainServer::PlainServer(HttpHandler& handler, PlainServerOptions options)
    : impl_(std::make_unique<Impl>(handler, std::move(options))) {}
PlainServer::~PlainServer() = default;

int PlainServer::port() const { return impl_->port(); }
void PlainServer::Stop() { impl_->Stop(); }
bool PlainServer::finished() const { return impl_->finished(); }

}  // namespace trimtab

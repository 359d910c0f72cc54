#include "tools/dashboard/dashboard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "search/live_report.h"
#include "search/page/live.h"
#include "search/page/page.h"
#include "tools/serve/plain_server.h"
#include "tools/serve/reply/json_text.h"

namespace trimtab {
namespace {

using httplib::Request;
using httplib::Response;

constexpr char kHost[] = "127.0.0.1";
constexpr std::string_view kPaths[] = {"/", "/state", "/report.json"};

/// Returns true if `host` names this machine. A page whose own name was made to lead here (DNS
/// rebinding) sends that name.
bool NamesThisMachine(std::string host) {
  if (const size_t port = host.rfind(':'); port != std::string::npos && !host.ends_with(']')) {
    host.resize(port);
  }
  constexpr std::array<std::string_view, 3> kNames = {"127.0.0.1", "localhost", "[::1]"};
  return std::ranges::find(kNames, host) != kNames.end();
}

}  // namespace

class Dashboard::Impl : private HttpHandler {
 public:
  Impl(std::string study_path, int64_t port)
      : study_path_(std::move(study_path)), server_(*this, {.host = kHost, .port = port}) {}

  int port() const { return server_.port(); }

 private:
  std::string MethodsOf(const std::string& path) const override {
    return std::ranges::find(kPaths, path) == std::end(kPaths) ? "" : "GET, HEAD";
  }
  std::string WhyNot(const std::string&) const override {
    return fmt::format("no such path; expected {}", fmt::join(kPaths, ", "));
  }
  httplib::Headers DefaultHeaders() const override {
    // frame-ancestors has no effect in a page's head.
    return {{"Content-Security-Policy", LivePolicy() + "; frame-ancestors 'none'"},
            {"X-Content-Type-Options", "nosniff"},
            {"Referrer-Policy", "no-referrer"},
            {"Cross-Origin-Resource-Policy", "same-origin"},
            {"Cache-Control", "no-store"}};
  }

  bool Before(const Request& request, Response& response) override {
    if (NamesThisMachine(request.get_header_value("Host"))) return false;
    SetError(response, 403,
             "the header Host names another machine; expected 127.0.0.1 or localhost",
             "invalid_request_error");
    return true;
  }

  void Get(const Request& request, Response& response) override {
    try {
      Show(request, response);
    } catch (const Error& error) {
      SetError(response, 503, error.what(), "server_error");
    }
  }

  void Post(const Request&, const std::string&, Response& response) override {
    response.status = 404;  // the error handler says more
  }

  void OnAnswer(const Request&, const Response&) override {}

  void Show(const Request& request, Response& response) {
    if (MethodsOf(request.path).empty()) {
      response.status = 404;  // the error handler says more
      return;
    }
    if (request.path == "/state" && request.get_param_value("since") == LiveVersion(study_path_)) {
      response.status = 204;
      return;
    }
    const LiveReport live = Read();
    if (request.path == "/") {
      response.set_content(LivePageHtml(live.version, live.html), "text/html; charset=utf-8");
    } else if (request.path == "/state") {
      response.set_content(JsonText({{"version", live.version}, {"html", live.html}}),
                           "application/json");
    } else if (live.json.empty()) {
      SetError(response, 503, "there is no report yet", "server_error");
    } else {
      response.set_content(live.json, "application/json");
    }
  }

  /// Returns the report as it is now. Browsers that ask at the same time share one.
  LiveReport Read() {
    const MutexLock lock(mutex_);
    if (last_.version.empty() || last_.version != LiveVersion(study_path_)) {
      last_ = ReadLiveReport(study_path_);
    }
    return last_;
  }

  const std::string study_path_;
  Mutex mutex_;
  LiveReport last_ TRIMTAB_GUARDED_BY(mutex_);
  PlainServer server_;  // asks this for answers as soon as it is there
};

Dashboard::Dashboard(std::string study_path, int64_t port)
    : impl_(std::make_unique<Impl>(std::move(study_path), port)) {}
Dashboard::~Dashboard() = default;

int Dashboard::port() const { return impl_->port(); }
std::string Dashboard::url() const { return fmt::format("http://{}:{}/", kHost, port()); }

}  // namespace trimtab

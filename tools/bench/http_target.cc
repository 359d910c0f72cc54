#include "tools/bench/http_target.h"

#include <httplib.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/infer/scheduler/clock.h"
#include "tools/serve/address.h"

namespace trimtab {
namespace {

using nlohmann::json;

double Now() { return SteadyClock().Now(); }

/// The events of a stream, from pieces of any size.
class EventReader {
 public:
  explicit EventReader(LoadOutcome& outcome) : outcome_(outcome) {}

  void Add(const char* data, size_t size) {
    const double now = Now();
    buffer_.append(data, size);
    size_t begin = 0;
    for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      Line(std::string_view(buffer_).substr(begin, end - begin), now);
    }
    buffer_.erase(0, begin);
  }

  bool done() const { return done_; }
  /// What came beside events: an error.
  const std::string& other() const { return other_; }

 private:
  void Line(std::string_view line, double now) {
    constexpr std::string_view kData = "data: ";
    if (!line.starts_with(kData)) {
      other_ += line;
      return;
    }
    line.remove_prefix(kData.size());
    if (line.starts_with("[DONE]")) {
      done_ = true;
      // Tokens without text, as special ones are, show at the end alone.
      if (outcome_.arrivals_s.empty() && outcome_.tokens > 0) outcome_.arrivals_s.push_back(now);
      return;
    }
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || event.contains("error")) {
      other_ += line;
      return;
    }
    if (event.contains("usage") && event["usage"].is_object()) {
      outcome_.tokens = event["usage"].value("completion_tokens", int64_t{0});
      outcome_.prompt_tokens = event["usage"].value("prompt_tokens", int64_t{0});
    }
    const json choices = event.value("choices", json::array());
    if (!choices.empty() && choices[0].is_object() && choices[0].value("text", "") != "") {
      outcome_.arrivals_s.push_back(now);
    }
  }

  LoadOutcome& outcome_;
  std::string buffer_;
  std::string other_;
  bool done_ = false;
};

class HttpTarget : public LoadTarget {
 public:
  explicit HttpTarget(HttpTargetOptions options) : options_(std::move(options)) {
    while (options_.url.ends_with('/')) options_.url.pop_back();
    const std::optional<ServerAddress> address = AddressOf(options_.url);
    if (!address) {
      throw UsageError(
          fmt::format("--url: '{}'; expected http://HOST:PORT without a path, and IPv6 as "
                      "http://[::1]:PORT",
                      options_.url));
    }
    address_ = *address;
    if (options_.model.empty()) options_.model = FirstModel();
  }

  LoadOutcome Run(const LoadRequest& request, const std::vector<int32_t>& prompt) override {
    LoadOutcome outcome;
    EventReader events(outcome);
    httplib::Client client = Connect();
    httplib::Request post;
    post.method = "POST";
    post.path = "/v1/completions";
    post.headers = Headers();
    post.headers.emplace("Content-Type", "application/json");
    post.body = json{{"model", options_.model},
                     {"prompt", prompt},
                     {"max_tokens", request.output_tokens},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}}
                    .dump();
    post.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      events.Add(data, size);
      return true;
    };
    outcome.sent_s = Now();
    const httplib::Result result = client.send(post);
    if (!result) {
      outcome.failure = httplib::to_string(result.error());
      if (!events.other().empty()) outcome.failure += ": " + events.other();
    } else if (result->status != 200 || !events.done()) {
      outcome.failure = fmt::format("status {}: {}", result->status, events.other());
    }
    return outcome;
  }

 private:
  httplib::Client Connect() const {
    httplib::Client client(address_.host, address_.port);
    const auto seconds = static_cast<time_t>(options_.timeout_s) + 1;
    client.set_read_timeout(seconds);
    client.set_write_timeout(seconds);
    client.set_tcp_nodelay(true);
    return client;
  }

  httplib::Headers Headers() const {
    if (options_.api_key.empty()) return {};
    return {{"Authorization", "Bearer " + options_.api_key}};
  }

  std::string FirstModel() const {
    httplib::Client client = Connect();
    const httplib::Result result = client.Get("/v1/models", Headers());
    if (!result) {
      throw EnvironmentError(
          fmt::format("{}: cannot connect ({})", options_.url, httplib::to_string(result.error())));
    }
    const json models = json::parse(result->body, nullptr, /*allow_exceptions=*/false);
    const auto path = json::json_pointer("/data/0/id");
    if (result->status == 200 && models.is_object() && models.contains(path) &&
        models[path].is_string()) {
      return models[path].get<std::string>();
    }
    throw InputError(fmt::format("{}/v1/models: status {}; expected a list of models", options_.url,
                                 result->status));
  }

  HttpTargetOptions options_;
  ServerAddress address_;
};

}  // namespace

std::unique_ptr<LoadTarget> MakeHttpTarget(HttpTargetOptions options) {
  return std::make_unique<HttpTarget>(std::move(options));
}

}  // namespace trimtab

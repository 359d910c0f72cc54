#include "tools/serve/server_stats.h"

#include <fmt/format.h>

#include <algorithm>

namespace trimtab {
namespace {

std::string Head(const std::string& name, const char* type, const std::string& help) {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

std::string Value(const std::string& name, const char* type, const std::string& help,
                  int64_t value) {
  return Head(name, type, help) + fmt::format("{} {}\n", name, value);
}

}  // namespace

void Histogram::Add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::Text(const std::string& name, const std::string& help) const {
  std::string text = Head(name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, below);
  }
  return text + fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum_, below);
}

void ServerStats::CountAnswer(const std::string& path, int status) {
  const MutexLock lock(mutex_);
  ++answers_[{path, status}];
}

void ServerStats::CountAbort() {
  const MutexLock lock(mutex_);
  ++aborts_;
}

void ServerStats::AddFirstToken(double seconds) {
  const MutexLock lock(mutex_);
  first_token_.Add(seconds);
}

void ServerStats::AddBetweenTokens(double seconds, size_t gaps) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < gaps; ++i) between_tokens_.Add(seconds / static_cast<double>(gaps));
}

void ServerStats::AddRequest(double seconds) {
  const MutexLock lock(mutex_);
  request_.Add(seconds);
}

std::string ServerStats::Text(const EngineMetrics& engine, int64_t in_flight) const {
  const MutexLock lock(mutex_);
  std::string text = Head("trimtab_http_requests_total", "counter", "Answers by path and status.");
  for (const auto& [key, count] : answers_) {
    text += fmt::format("trimtab_http_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  text += Value("trimtab_requests_in_flight", "gauge", "Generations not yet ended.", in_flight);
  text += Value("trimtab_requests_aborted_total", "counter",
                "Generations whose client left, that took too long or that failed.", aborts_);
  text += first_token_.Text("trimtab_time_to_first_token_seconds",
                            "From a request's arrival to its first token.");
  text += between_tokens_.Text("trimtab_time_between_tokens_seconds",
                               "Between two tokens of one request.");
  text += request_.Text("trimtab_request_seconds", "From a request's arrival to its end.");
  text += Value("trimtab_engine_steps_total", "counter", "Passes of the model.", engine.steps);
  text += Value("trimtab_prompt_tokens_total", "counter", "Prompt tokens computed.",
                engine.prompt_tokens);
  text += Value("trimtab_cached_prompt_tokens_total", "counter",
                "Prompt tokens found in the cache.", engine.cached_tokens);
  text += Value("trimtab_generated_tokens_total", "counter", "Tokens generated.",
                engine.generated_tokens);
  text += Value("trimtab_preemptions_total", "counter", "Sequences put back to wait.",
                engine.preemptions);
  text += Value("trimtab_moved_requests_total", "counter",
                "Requests gone on with by another replica than computed their prompts.",
                engine.moved_requests);
  text += Value("trimtab_sequences_running", "gauge", "Sequences worked on.", engine.running);
  text +=
      Value("trimtab_requests_waiting", "gauge", "Requests that wait for a place.", engine.waiting);
  text += Value("trimtab_cache_blocks_used", "gauge", "Blocks of the cache in use.",
                engine.used_blocks);
  return text + Value("trimtab_cache_blocks", "gauge", "Blocks of the cache.", engine.total_blocks);
}

}  // namespace trimtab

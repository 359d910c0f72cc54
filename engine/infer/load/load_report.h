// What a load has shown: latencies, throughput, goodput.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/infer/load/workload.h"

namespace trimtab {

/// What became of one request. Times are of one clock.
struct LoadOutcome {
  double sent_s = -1;                // below 0: it was not
  std::vector<double> arrivals_s{};  // of text
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;     // of the answer
  std::string failure{};  // why there is no whole answer; empty if there is
};

/// A distribution of times in milliseconds; quantiles are interpolated between neighbours.
struct LatencySummary {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0;

  bool operator==(const LatencySummary&) const = default;
};
LatencySummary Summarise(std::vector<double> milliseconds);

/// What a request must keep to be good; 0 asks for nothing.
struct LatencyLimits {
  double ttft_ms = 0;  // from sending to the first text
  double tpot_ms = 0;  // mean time per token after the first
  double e2e_ms = 0;   // from sending to the last text
};
/// "ttft<500ms,tpot<30ms,e2e<5s". Throws UsageError.
LatencyLimits ParseLimits(const std::string& text);

struct LoadReport {
  int64_t requests = 0;
  int64_t failed = 0;
  std::string first_failure{};
  double duration_s = 0;  // from the first request sent to the last text
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  LatencySummary ttft{}, tpot{}, itl{}, e2e{};
  int64_t good = 0;  // whole answers within all limits

  double output_tokens_per_s() const { return PerSecond(output_tokens); }
  double requests_per_s() const { return PerSecond(requests - failed); }
  double goodput() const { return PerSecond(good); }

  bool operator==(const LoadReport&) const = default;

 private:
  double PerSecond(int64_t count) const {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  }
};

/// Returns each figure's median over `reports`, which are of one load.
LoadReport MedianOf(const std::vector<LoadReport>& reports);

/// Returns the seconds per output token of a service under `load`, at most as fast as an open loop
/// asks for them. Infinite if none came.
double SecondsPerToken(const LoadReport& report, const ServiceLoad& load);

LoadReport MakeLoadReport(const std::vector<LoadOutcome>& outcomes, const LatencyLimits& limits);

nlohmann::json ToJson(const LoadReport& report);
/// Inverse of ToJson. Throws InputError.
LoadReport LoadReportFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab

#include "search/serving/requirement.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace trimtab {
namespace {

struct LatencyName {
  const char* name;
  LatencySummary LoadReport::*latency;
};
constexpr LatencyName kLatencies[] = {{"ttft", &LoadReport::ttft},
                                      {"tpot", &LoadReport::tpot},
                                      {"itl", &LoadReport::itl},
                                      {"e2e", &LoadReport::e2e}};

struct QuantileName {
  const char* name;
  double LatencySummary::*quantile;
};
constexpr QuantileName kQuantiles[] = {{"mean", &LatencySummary::mean},
                                       {"p50", &LatencySummary::p50},
                                       {"p90", &LatencySummary::p90},
                                       {"p95", &LatencySummary::p95},
                                       {"p99", &LatencySummary::p99}};

constexpr const char* kThroughput = "throughput";

}  // namespace

Requirement::Requirement(const std::string& text) : text_(text) {
  const auto refuse = [&text] {
    return UsageError(fmt::format(
        "--require: '{}'; expected ttft, tpot, itl or e2e with .mean, .p50, .p90, .p95 or .p99, "
        "as ttft.p99<500ms, or throughput>1000",
        text));
  };
  const size_t sign = text.find_first_of("<>");
  if (sign == std::string::npos) throw refuse();
  metric_ = text.substr(0, sign);
  std::string_view value = std::string_view(text).substr(sign + 1);
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit_);
  if (error != std::errc() || !std::isfinite(limit_) || limit_ <= 0) throw refuse();
  value.remove_prefix(static_cast<size_t>(end - value.data()));
  if (text[sign] == '>') {
    if (metric_ != kThroughput || !value.empty()) throw refuse();
    return;
  }
  const size_t dot = std::min(metric_.find('.'), metric_.size());
  for (const LatencyName& each : kLatencies) {
    if (metric_.compare(0, dot, each.name) == 0) latency_ = each.latency;
  }
  for (const QuantileName& each : kQuantiles) {
    if (metric_.substr(std::min(dot + 1, metric_.size())) == each.name) quantile_ = each.quantile;
  }
  if (latency_ == nullptr || quantile_ == nullptr || (value != "ms" && value != "s")) {
    throw refuse();
  }
  if (value == "s") limit_ *= 1000;
}

double Requirement::ValueIn(const LoadReport& report) const {
  return latency_ == nullptr ? report.output_tokens_per_s() : report.*latency_.*quantile_;
}

double Requirement::Strain(const LoadReport& report) const {
  if (report.failed > 0) return std::numeric_limits<double>::infinity();
  const double value = ValueIn(report);
  return latency_ == nullptr ? limit_ / value : value / limit_;
}

std::string Requirement::Relaxed(double value) const {
  return latency_ == nullptr ? fmt::format("{}>{:.4g}", metric_, value)
                             : fmt::format("{}<{:.4g}ms", metric_, value);
}

std::vector<Requirement> ParseRequirements(const std::string& text) {
  std::vector<Requirement> requirements;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    requirements.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return requirements;
}

double Strain(const std::vector<Requirement>& requirements, const LoadReport& report) {
  double most = report.failed > 0 ? std::numeric_limits<double>::infinity() : 0;
  for (const Requirement& each : requirements) most = std::max(most, each.Strain(report));
  return most;
}

}  // namespace trimtab

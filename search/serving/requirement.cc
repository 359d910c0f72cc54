#include "search/serving/requirement.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"

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
constexpr const char* kPerplexity = "perplexity";

/// The next limit above a rise of perplexity, with three digits behind the 1.
double NextLimit(double rise) {
  constexpr double kLeast = 1e-6;
  constexpr double kRounding = 1e-6;  // 1.003 - 1 is a little less than 0.003
  const double above = std::max(0.0, rise - 1);
  const double unit = std::pow(10, std::floor(std::log10(std::max(above, kLeast))) - 2);
  return 1 + unit * (std::floor(above / unit + kRounding) + 1);
}

/// In four digits: the next above `value`, or for rates below it.
std::string NextAfter(double value, bool above) {
  if (!std::isfinite(value) || value <= 0) return fmt::format("{:.4g}", value);
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  for (double steps = std::round(value / unit);; steps += above ? 1 : -1) {
    const std::string text = fmt::format("{:.4g}", steps * unit);
    const double limit = std::strtod(text.c_str(), nullptr);
    if (above ? limit > value : limit < value) return text;
  }
}

}  // namespace

Requirement::Requirement(const std::string& text) : text_(text) {
  const auto refuse = [&text] {
    return UsageError(fmt::format(
        "--require: '{}'; expected ttft, tpot, itl or e2e with .mean, .p50, .p90, .p95 or .p99, "
        "as ttft.p99<500ms, or throughput>1000, or perplexity<1.02x, which is above 1",
        text));
  };
  const size_t sign = text.find_first_of("<>");
  if (sign == std::string::npos) throw refuse();
  name_ = text.substr(0, sign);
  std::string_view unit = std::string_view(text).substr(sign + 1);
  const bool allows_equal = unit.starts_with('=');
  if (allows_equal) unit.remove_prefix(1);
  const auto [end, error] = std::from_chars(unit.data(), unit.data() + unit.size(), limit_);
  if (error != std::errc() || !std::isfinite(limit_) || limit_ <= 0) throw refuse();
  unit.remove_prefix(static_cast<size_t>(end - unit.data()));
  if (name_ == kThroughput) {
    metric_ = Metric::kThroughput;
    if (text[sign] != '>' || !unit.empty()) throw refuse();
  } else if (name_ == kPerplexity) {
    metric_ = Metric::kPerplexity;
    if (text[sign] != '<' || unit != "x" || limit_ <= 1) throw refuse();
  } else if (text[sign] != '<' || !ReadLatency(unit)) {
    throw refuse();
  }
  // What is at the limit is within the next one.
  if (allows_equal) limit_ = std::nextafter(limit_, text[sign] == '<' ? HUGE_VAL : 0.0);
}

bool Requirement::ReadLatency(std::string_view unit) {
  const size_t dot = std::min(name_.find('.'), name_.size());
  for (const LatencyName& each : kLatencies) {
    if (name_.compare(0, dot, each.name) == 0) latency_ = each.latency;
  }
  for (const QuantileName& each : kQuantiles) {
    if (name_.substr(std::min(dot + 1, name_.size())) == each.name) quantile_ = each.quantile;
  }
  if (unit == "s") limit_ *= 1000;
  return latency_ != nullptr && quantile_ != nullptr && (unit == "ms" || unit == "s");
}

double Requirement::ValueIn(const Service& service) const {
  switch (metric_) {
    case Metric::kLatency:
      return service.report.*latency_.*quantile_;
    case Metric::kThroughput:
      return service.report.output_tokens_per_s();
    case Metric::kPerplexity:
      return service.perplexity_rise;
  }
  return 0;
}

double Requirement::Strain(const Service& service) const {
  if (service.report.failed > 0) return std::numeric_limits<double>::infinity();
  const double value = ValueIn(service);
  switch (metric_) {
    case Metric::kLatency:
      return value / limit_;
    case Metric::kThroughput:
      return limit_ / value;
    case Metric::kPerplexity:
      return std::max(0.0, value - 1) / (limit_ - 1);
  }
  return 0;
}

std::string Requirement::Relaxed(double value) const {
  switch (metric_) {
    case Metric::kLatency:
      return fmt::format("{}<{}ms", name_, NextAfter(value, /*above=*/true));
    case Metric::kThroughput:
      return fmt::format("{}>{}", name_, NextAfter(value, /*above=*/false));
    case Metric::kPerplexity:
      return fmt::format("{}<{:.9g}x", name_, NextLimit(value));
  }
  return "";
}

std::vector<Requirement> ParseRequirements(const std::string& text) {
  std::vector<Requirement> requirements;
  if (text.empty()) return requirements;
  for (const std::string& each : Split(text, ',')) requirements.emplace_back(each);
  return requirements;
}

double Strain(const std::vector<Requirement>& requirements, const Service& service) {
  double most = service.report.failed > 0 ? std::numeric_limits<double>::infinity() : 0;
  for (const Requirement& each : requirements) most = std::max(most, each.Strain(service));
  return most;
}

}  // namespace trimtab

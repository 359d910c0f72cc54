// Requirements: what clients of a service must get, as in --require
// "ttft.p99<500ms,tpot.mean<30ms,perplexity<1.02x".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/infer/load/load_report.h"

namespace trimtab {

/// What clients of a configuration get.
struct Service {
  const LoadReport& report;
  double perplexity_rise = 1;  // the perplexity of a text, in that of the original weights
};

/// One figure of a service, and what it must be below, or for rates above.
class Requirement {
 public:
  /// "ttft.p99<500ms", "tpot.mean<0.03s", "throughput>1000" (output tokens/s), "perplexity<1.02x"
  /// (of the original weights'); with <= and >= also at the limit. Throws UsageError.
  explicit Requirement(const std::string& text);

  /// As it was given.
  const std::string& text() const { return text_; }
  /// Whether it limits the loss of quality, which what is stored in fewer bits decides alone.
  bool of_quality() const { return metric_ == Metric::kPerplexity; }
  /// The figure: milliseconds, tokens/s, or a rise of perplexity.
  double ValueIn(const Service& service) const;
  /// How often the limit goes into the figure, for rates the figure into the limit, for perplexity
  /// the part above 1 of either: below 1 when the requirement is met. Infinite when a request
  /// failed.
  double Strain(const Service& service) const;
  /// The least change, in four digits, that a service with this value meets.
  std::string Relaxed(double value) const;

 private:
  enum class Metric { kLatency, kThroughput, kPerplexity };

  /// Reads "ttft.p99" and the unit behind its limit; false if that is no latency.
  bool ReadLatency(std::string_view unit);

  std::string text_;
  std::string name_;  // "ttft.p99"
  Metric metric_ = Metric::kLatency;
  LatencySummary LoadReport::*latency_ = nullptr;
  double LatencySummary::*quantile_ = nullptr;
  double limit_ = 0;
};

/// Separated by commas; none in an empty text. Throws UsageError.
std::vector<Requirement> ParseRequirements(const std::string& text);

/// The largest strain: below 1 when all are met; 0 without any.
double Strain(const std::vector<Requirement>& requirements, const Service& service);

}  // namespace trimtab

// Requirements: what clients of a service must see, as in --require
// "ttft.p99<500ms,tpot.mean<30ms".
#pragma once

#include <string>
#include <vector>

#include "engine/infer/load_report.h"

namespace trimtab {

/// One figure of a load, and what it must be below, or for rates above.
class Requirement {
 public:
  /// "ttft.p99<500ms", "tpot.mean<0.03s", "throughput>1000" (output tokens/s). Throws UsageError.
  explicit Requirement(const std::string& text);

  /// As it was given.
  const std::string& text() const { return text_; }
  /// The figure: milliseconds, or tokens/s.
  double ValueIn(const LoadReport& report) const;
  /// How often the limit goes into the figure, for rates the figure into the limit: below 1 when
  /// the requirement is met. Infinite when a request failed.
  double Strain(const LoadReport& report) const;
  /// The requirement that a report with this value would just meet.
  std::string Relaxed(double value) const;

 private:
  std::string text_;
  std::string metric_;  // "ttft.p99"
  LatencySummary LoadReport::*latency_ = nullptr;
  double LatencySummary::*quantile_ = nullptr;
  double limit_ = 0;
};

/// Separated by commas; none in an empty text. Throws UsageError.
std::vector<Requirement> ParseRequirements(const std::string& text);

/// The largest strain: below 1 when all are met; 0 without any.
double Strain(const std::vector<Requirement>& requirements, const LoadReport& report);

}  // namespace trimtab

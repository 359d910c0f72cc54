#include "profiler/stats.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace trimtab {

double Median(std::vector<double> values) {
  TRIMTAB_ASSERT(!values.empty(), "median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double MedianAbsoluteDeviation(const std::vector<double>& values, double center) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - center));
  return Median(std::move(deviations));
}

}  // namespace trimtab

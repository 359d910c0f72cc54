#include "profiler/stats.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

double StudentQuantile(double confidence, double degrees_of_freedom) {
  TRIMTAB_ASSERT(confidence > 0 && confidence < 1 && degrees_of_freedom >= 2,
                 "confidence {} with {} degrees of freedom", confidence, degrees_of_freedom);
  // The probability of exceeding t, by the integral of the density; t by bisection.
  const double nu = degrees_of_freedom;
  const double scale =
      std::exp(std::lgamma((nu + 1) / 2) - std::lgamma(nu / 2)) / std::sqrt(nu * std::numbers::pi);
  const auto within = [&](double t) {
    constexpr int kPanels = 200;  // Simpson's rule over 0..t
    const auto density = [&](double x) { return std::pow(1 + x * x / nu, -(nu + 1) / 2); };
    double sum = density(0) + density(t);
    for (int i = 1; i < kPanels; ++i) sum += (i % 2 == 1 ? 4 : 2) * density(t * i / kPanels);
    return 2 * scale * sum * t / kPanels / 3;
  };
  double low = 0;
  double high = 100;
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    (within(middle) < confidence ? low : high) = middle;
  }
  return low;
}

}  // namespace trimtab

#include "cost_model/correction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// What predictions are taken to scatter by around a mode's factor before any are seen (a standard
// deviation, relative), and how many samples that is worth.
constexpr double kExpectedScatter = 0.03;
constexpr double kExpectedScatterWeight = 4;
// Half-width over standard error. More than a normal distribution's 95 % needs: what was measured
// first was chosen for its good predictions, which are the more hopeful ones.
constexpr double kErrorsOfHalfWidth = 2.0;
constexpr double kUnusual = 3;  // standard deviations

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

Correction::Factor FitFactor(const std::vector<double>& ratios) {
  Correction::Factor factor;
  factor.ratio = Median(ratios);
  factor.samples = static_cast<int64_t>(ratios.size());
  double sum = kExpectedScatterWeight * kExpectedScatter * kExpectedScatter;
  double freedom = kExpectedScatterWeight - 1;
  std::vector<double> deviations;
  for (const double ratio : ratios) deviations.push_back(std::abs(ratio / factor.ratio - 1));
  // A disturbed trial counts as one that is just unusual.
  const double most = kUnusual * std::max(kExpectedScatter, Median(deviations) / 0.6745);
  for (const double each : deviations) {
    const double deviation = std::min(each, most);
    sum += deviation * deviation;
    freedom += 1;
  }
  const auto samples = static_cast<double>(ratios.size());
  factor.half_width = kErrorsOfHalfWidth * std::sqrt(sum / freedom * (1 + 1 / samples));
  return factor;
}

}  // namespace

Correction FitCorrection(std::span<const PredictionSample> samples) {
  std::map<Mode, std::vector<double>> ratios;
  for (const PredictionSample& sample : samples) {
    TRIMTAB_ASSERT(sample.predicted_s > 0 && sample.measured_s > 0,
                   "a step was predicted to take {} s and measured at {} s", sample.predicted_s,
                   sample.measured_s);
    ratios[sample.mode].push_back(sample.measured_s / sample.predicted_s);
  }
  Correction correction;
  for (const auto& [mode, values] : ratios) correction.factors[mode] = FitFactor(values);
  return correction;
}

}  // namespace trimtab

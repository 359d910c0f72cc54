#include "cost_model/correction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// A single trial says nothing about its own spread.
constexpr double kHalfWidthOfOneSample = 0.15;
constexpr double kLeastHalfWidth = 0.05;
constexpr double kDeviationsOfHalfWidth = 3;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

Correction::Factor FitFactor(const std::vector<double>& ratios) {
  Correction::Factor factor;
  factor.ratio = Median(ratios);
  factor.samples = static_cast<int64_t>(ratios.size());
  factor.half_width = kHalfWidthOfOneSample;
  if (ratios.size() < 2) return factor;
  std::vector<double> deviations;
  for (const double ratio : ratios) {
    deviations.push_back(std::abs(ratio - factor.ratio) / factor.ratio);
  }
  factor.half_width = std::max(kLeastHalfWidth, kDeviationsOfHalfWidth * Median(deviations));
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

#include "search/race/correct.h"

#include <cmath>
#include <map>
#include <set>

#include "cost_model/estimate.h"
#include "search/race/race.h"

namespace trimtab {
namespace {

void Scale(const Correction::Factor& factor, Prediction& prediction) {
  prediction.step_time_s *= factor.ratio;
  prediction.step_time_low_s = prediction.step_time_s / (1 + factor.half_width);
  prediction.step_time_high_s = prediction.step_time_s * (1 + factor.half_width);
  prediction.tokens_per_s /= factor.ratio;
  for (auto& [part, seconds] : prediction.breakdown_s) seconds *= factor.ratio;
  prediction.trust = Trust::kCalibrated;
}

std::map<Mode, Correction::Factor> FactorsOf(const std::string& numerics,
                                             const std::vector<Residual>& residuals) {
  std::vector<PredictionSample> samples;
  for (const Residual& each : residuals) {
    if (each.numerics == numerics) samples.push_back(each.sample);
  }
  return FitCorrection(samples).factors;
}

/// What was measured in one precision says nothing of the prices of another.
void CorrectOneNumerics(const std::string& numerics, const std::vector<Residual>& seed,
                        const std::vector<Residual>& own,
                        std::vector<CandidateRecord>& candidates) {
  std::map<Mode, Correction::Factor> factors = FactorsOf(numerics, own);
  for (auto& [mode, factor] : FactorsOf(numerics, seed)) {
    factor.half_width = std::hypot(factor.half_width, factor.ratio - 1);
    factors.try_emplace(mode, factor);
  }
  for (CandidateRecord& candidate : candidates) {
    const auto factor = factors.find(ModeOf(candidate.run));
    if (NumericsOf(candidate) != numerics) continue;
    if (candidate.measured || factor == factors.end()) continue;
    if (candidate.stored_prediction() == nullptr) continue;
    candidate.corrected = *candidate.stored_prediction();
    Scale(factor->second, *candidate.corrected);
  }
}

}  // namespace

std::vector<Residual> ResidualsOf(const std::vector<CandidateRecord>& candidates) {
  std::vector<Residual> residuals;
  for (const CandidateRecord& candidate : candidates) {
    if (!candidate.measured) continue;
    residuals.push_back({.numerics = NumericsOf(candidate),
                         .sample = {.mode = ModeOf(candidate.run),
                                    .predicted_s = candidate.prediction()->step_time_s,
                                    .measured_s = candidate.measured->step_time_s}});
  }
  return residuals;
}

void CorrectPredictions(const std::vector<Residual>& seed,
                        std::vector<CandidateRecord>& candidates) {
  const std::vector<Residual> own = ResidualsOf(candidates);
  std::set<std::string> all;
  for (const CandidateRecord& candidate : candidates) all.insert(NumericsOf(candidate));
  for (const std::string& numerics : all) CorrectOneNumerics(numerics, seed, own, candidates);
}

}  // namespace trimtab

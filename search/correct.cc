#include "search/correct.h"

#include <set>

#include "cost_model/correction.h"
#include "cost_model/estimate.h"
#include "search/race.h"

namespace trimtab {
namespace {

void Scale(const Correction::Factor& factor, Prediction& prediction) {
  prediction.step_time_s *= factor.ratio;
  prediction.step_time_low_s = prediction.step_time_s / (1 + factor.half_width);
  prediction.step_time_high_s = prediction.step_time_s * (1 + factor.half_width);
  prediction.tokens_per_s /= factor.ratio;
  for (auto& [part, seconds] : prediction.breakdown_s) seconds *= factor.ratio;
  prediction.trust = Name(Trust::kCalibrated);
}

/// What was measured in one precision says nothing of the prices of another.
void CorrectOnePrecision(Precision precision, std::vector<CandidateRecord>& candidates) {
  std::vector<PredictionSample> samples;
  for (const CandidateRecord& candidate : candidates) {
    if (!candidate.measured || candidate.run.layout.precision != precision) continue;
    samples.push_back({.mode = ModeOf(candidate.run),
                       .predicted_s = candidate.prediction()->step_time_s,
                       .measured_s = candidate.measured->step_time_s});
  }
  const Correction correction = FitCorrection(samples);
  for (CandidateRecord& candidate : candidates) {
    const auto factor = correction.factors.find(ModeOf(candidate.run));
    if (candidate.run.layout.precision != precision) continue;
    if (candidate.measured || factor == correction.factors.end()) continue;
    if (candidate.closed_form) Scale(factor->second, *candidate.closed_form);
    if (candidate.dry_run) Scale(factor->second, *candidate.dry_run);
    candidate.corrected = candidate.prediction() != nullptr;
  }
}

}  // namespace

void CorrectPredictions(std::vector<CandidateRecord>& candidates) {
  std::set<Precision> precisions;
  for (const CandidateRecord& candidate : candidates) {
    precisions.insert(candidate.run.layout.precision);
  }
  for (const Precision precision : precisions) CorrectOnePrecision(precision, candidates);
}

}  // namespace trimtab

#include "search/recommend.h"

#include <algorithm>
#include <cmath>

#include "cost_model/numerics.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

double RelativeError(double predicted, double measured) {
  return (predicted - measured) / measured;
}

/// A layout without its precision and optimizer state, which tables show apart.
std::string GroupsOf(ParallelConfig layout) {
  const ParallelConfig defaults;
  layout.precision = defaults.precision;
  layout.master = defaults.master;
  layout.moments = defaults.moments;
  layout.gradients = defaults.gradients;
  return ToString(layout);
}

RankingRow MakeRow(const std::vector<CandidateRecord>& candidates, size_t index) {
  const CandidateRecord& candidate = candidates[index];
  const Prediction& prediction = *candidate.prediction();
  RankingRow row;
  row.candidate = index;
  row.layout = candidate.key;
  row.groups = GroupsOf(candidate.run.layout);
  row.precision = candidate.run.layout.precision;
  row.optimizer_state = OptimizerStateName(candidate.run.layout);
  row.predicted_tokens_per_s = prediction.tokens_per_s;
  row.predicted_peak_mem_bytes = prediction.peak_mem_bytes;
  row.prediction_tier = candidate.dry_run ? "dry_run" : "closed_form";
  row.state = "predicted";
  if (candidate.measured) {
    const Measurement& measured = *candidate.measured;
    row.state = "measured";
    row.measured_tokens_per_s = measured.tokens_per_s;
    row.measured_peak_mem_bytes = measured.peak_mem_bytes;
    row.step_time_error = RelativeError(prediction.step_time_s, measured.step_time_s);
    row.peak_mem_error = RelativeError(static_cast<double>(prediction.peak_mem_bytes),
                                       static_cast<double>(measured.peak_mem_bytes));
  } else if (IsSettled(candidate)) {
    row.state = candidate.last_state;
  }
  return row;
}

double ScoreOf(Objective objective, const std::vector<CandidateRecord>& candidates,
               const RankingRow& row) {
  return Score(objective, candidates[row.candidate].run,
               row.measured_tokens_per_s.value_or(row.predicted_tokens_per_s),
               row.measured_peak_mem_bytes.value_or(row.predicted_peak_mem_bytes));
}

}  // namespace

std::vector<RankingRow> RankAll(Objective objective,
                                const std::vector<CandidateRecord>& candidates) {
  std::vector<RankingRow> rows;
  for (const size_t index : RankByMeasurement(objective, candidates)) {
    rows.push_back(MakeRow(candidates, index));
  }
  std::vector<RankingRow> failed;
  for (const size_t index : RankByPrediction(objective, candidates)) {
    if (candidates[index].measured) continue;
    std::vector<RankingRow>& part = IsSettled(candidates[index]) ? failed : rows;
    part.push_back(MakeRow(candidates, index));
  }
  rows.insert(rows.end(), failed.begin(), failed.end());
  return rows;
}

std::optional<Recommendation> Recommend(Objective objective,
                                        const std::vector<CandidateRecord>& candidates,
                                        const std::vector<RankingRow>& ranking) {
  // The ranking is in this order already: the first row is the choice, if it is one that runs.
  if (ranking.empty()) return std::nullopt;
  const RankingRow& winner = ranking.front();
  if (winner.state != "measured" && winner.state != "predicted") return std::nullopt;

  Recommendation choice;
  choice.measured = winner.state == "measured";
  const Prediction& prediction = *candidates[winner.candidate].prediction();
  for (const auto& [part, seconds] : prediction.breakdown_s) {
    const double share = seconds / prediction.step_time_s;
    if (part == "compute" || share <= choice.binds_share) continue;
    choice.binds = part;
    choice.binds_share = share;
  }
  if (ranking.size() > 1 && ranking[1].state == winner.state) {
    choice.alternative = 1;
    choice.alternative_cost =
        ScoreOf(objective, candidates, ranking[1]) / ScoreOf(objective, candidates, winner) - 1;
  }
  const auto unproved = std::find_if(ranking.begin(), ranking.end(), [](const RankingRow& row) {
    return row.state == "predicted";
  });
  if (choice.measured && unproved != ranking.end() && candidates[unproved->candidate].corrected) {
    const double gain =
        1 - ScoreOf(objective, candidates, *unproved) / ScoreOf(objective, candidates, winner);
    if (gain > 0) {
      choice.contender = static_cast<size_t>(unproved - ranking.begin());
      choice.contender_gain = gain;
    }
  }
  return choice;
}

std::vector<NumericsRow> SummarizeNumerics(Objective objective,
                                           const std::vector<CandidateRecord>& candidates,
                                           const std::vector<RankingRow>& ranking) {
  const auto predicted_score = [&](const RankingRow& row) {
    return Score(objective, candidates[row.candidate].run, row.predicted_tokens_per_s,
                 row.predicted_peak_mem_bytes);
  };
  std::vector<NumericsRow> best;
  for (size_t i = 0; i < ranking.size(); ++i) {
    const RankingRow& row = ranking[i];
    const bool seen = std::any_of(best.begin(), best.end(), [&](const NumericsRow& each) {
      return each.precision == row.precision && each.optimizer_state == row.optimizer_state;
    });
    if (seen) continue;
    const RankingRow& winner = ranking.front();
    const bool measured = row.state == "measured" && winner.state == "measured";
    const double cost =
        measured ? ScoreOf(objective, candidates, row) / ScoreOf(objective, candidates, winner)
                 : predicted_score(row) / predicted_score(winner);
    best.push_back(
        {.precision = row.precision,
         .optimizer_state = row.optimizer_state,
         .precision_means = DescribePrecision(row.precision),
         .optimizer_state_means = DescribeOptimizerState(candidates[row.candidate].run.layout),
         .row = i,
         .extra_cost = cost - 1});
  }
  return best;
}

Accuracy SummarizeAccuracy(const std::vector<RankingRow>& ranking) {
  std::vector<double> time_errors;
  Accuracy accuracy;
  for (const RankingRow& row : ranking) {
    if (!row.step_time_error || !row.peak_mem_error) continue;
    time_errors.push_back(std::abs(*row.step_time_error));
    accuracy.max_peak_mem_error =
        std::max(accuracy.max_peak_mem_error, std::abs(*row.peak_mem_error));
  }
  if (time_errors.empty()) return accuracy;
  accuracy.proved = static_cast<int64_t>(time_errors.size());
  accuracy.median_step_time_error = Median(time_errors);
  accuracy.max_step_time_error = *std::max_element(time_errors.begin(), time_errors.end());
  return accuracy;
}

}  // namespace trimtab

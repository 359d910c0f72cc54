// Recommend: the winner, the runner-up and why.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "search/race/race.h"

namespace trimtab {

/// The source of a row: a measured step, a predicted one, or trials that fail.
enum class RowState { kMeasured, kPredicted, kFailed };

/// One line of the ranking. Errors are (predicted - measured) / measured, both at the speed of the
/// machine that the predictions are of.
struct RankingRow {
  size_t candidate = 0;  // index into SearchResult::candidates
  std::string layout;
  std::string groups;           // the candidate's key without precision and optimizer state
  std::string precision;        // as in ParallelConfig
  std::string optimizer_state;  // its name: cost_model/hardware/numerics.h
  double predicted_tokens_per_s = 0;
  int64_t predicted_peak_mem_bytes = 0;
  std::string prediction_tier;  // "closed_form" or "dry_run"
  std::optional<double> measured_tokens_per_s;
  std::optional<int64_t> measured_peak_mem_bytes;
  std::optional<double> step_time_error;
  std::optional<double> peak_mem_error;
  RowState state = RowState::kPredicted;
  std::optional<TrialState> failure;  // of a failed one: how its last trial ended
  Standing standing = Standing::kPredicted;
  int64_t visits = 0;
  /// The figure that decides its place: measured where it was visited, else predicted.
  struct Figure {
    double tokens_per_s = 0;
    // Ends of the interval; none where too little is known for it to say anything.
    std::optional<double> low{};
    std::optional<double> high{};
    Trust trust = Trust::kModelled;
  } figure;
  /// How much worse its score is than the best one's, by the figures of both: 0.03 = 3 %.
  struct Worse {
    double by = 0;
    // Of the interval; without one where too little is known for it to say anything.
    std::optional<double> low{};
    std::optional<double> high{};
  };
  std::optional<Worse> against_best;  // of those that were visited
  /// Why it is below a measured row with fewer tokens/s; empty where it is not.
  std::string why_below;

  /// "measured", "predicted", or how its trial failed: "out_of_memory".
  std::string StateName() const;
  /// As measured, or else as predicted.
  int64_t peak_mem_bytes() const {
    return measured_peak_mem_bytes.value_or(predicted_peak_mem_bytes);
  }
};

/// What a step's time goes to.
struct Binding {
  std::string what;          // the largest part besides compute: "exposed_dp", "optimizer", ...
  double share = 0;          // of the predicted step time, 0..1
  double compute_share = 0;  // likewise
  std::string text;          // in a sentence
};
Binding WhatBinds(const Prediction& prediction);

/// The choice. Indices into the ranking.
struct Recommendation {
  size_t row = 0;
  bool measured = false;  // false: nothing was proved, the prediction decides
  Binding binds;
  std::optional<size_t> alternative;     // the next best row of the same kind
  RankingRow::Worse alternative_cost{};  // how much worse its score is
  // The best unproved row, where its prediction, corrected by what was measured, beats the measured
  // winner: worth proving next.
  std::optional<size_t> contender;
  double contender_gain = 0;  // how much better its score is expected to be: 0.03 = 3 %
  /// What one would start with: data parallel over all GPUs, on a cpu one rank with all cores;
  /// micro batch 1, numerics as recommended. None where that is not in the running.
  std::optional<size_t> plain;
  double plain_gain = 0;  // tokens/s against it: 0.5 = half as much again
};

/// The best, then the other measured candidates best first, then predicted ones best first, then
/// those whose trial failed.
std::vector<RankingRow> RankAll(const RaceRules& rules, const Race& race,
                                const std::vector<CandidateRecord>& candidates);

/// The first of the ranking, if it runs. nullopt when nothing runs at all.
std::optional<Recommendation> Recommend(Objective objective,
                                        const std::vector<CandidateRecord>& candidates,
                                        const std::vector<RankingRow>& ranking);

/// The best row of one precision and optimizer state: what staying with those numerics costs.
struct NumericsRow {
  std::string precision;
  std::string optimizer_state;
  std::string precision_means;  // a line each
  std::string optimizer_state_means;
  size_t row = 0;         // index into the ranking
  double extra_cost = 0;  // how much worse its score is than the choice's, by figures of the same
                          // kind (both measured, or both predicted): 0.03 = 3 %
};
/// One for each combination in the running, in the order of the ranking. `predicted`: the
/// candidates before measurements corrected the predictions of some (correct.h).
std::vector<NumericsRow> SummarizeNumerics(Objective objective,
                                           const std::vector<CandidateRecord>& predicted,
                                           const std::vector<RankingRow>& ranking);

/// Median and largest |error| of the predictions that were proved.
struct Accuracy {
  int64_t proved = 0;
  double median_step_time_error = 0;
  double max_step_time_error = 0;
  std::optional<double> max_peak_mem_error{};  // none where memory is a limit, as of services
};
Accuracy SummarizeAccuracy(const std::vector<RankingRow>& ranking);

}  // namespace trimtab

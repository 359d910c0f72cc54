// Strategy: what is best, and which candidates to look at more closely.
//
// Three tiers, each cheaper than the next and each asked only about the best of the one before:
// every legal candidate gets a closed form, the best `dry_run_count` a dry run, as does what would
// be chosen without one, and the best of those race each other (race.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "search/study/study.h"

namespace trimtab {

/// What "best" means.
enum class Objective {
  kThroughput,  // most tokens per second
  kMemory,      // least peak memory of the fullest rank
  kCost,        // least rank-seconds per token, and with that least energy at the GPUs' own power;
                // on cpu, whose ranks share one machine, as throughput
};
inline constexpr std::array kObjectives = {Objective::kThroughput, Objective::kMemory,
                                           Objective::kCost};
std::string Name(Objective objective);
/// Throws UsageError for anything but throughput, memory, cost.
Objective ParseObjective(const std::string& text);

/// The figure to minimise, for a step of `run` with these figures: seconds per token, bytes, or
/// rank-seconds per token.
double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes);

/// What candidates are ordered by, smallest first: the score, then the seconds of a step.
using SortKey = std::pair<double, double>;
SortKey PredictionKey(Objective objective, const RunConfig& run, const Prediction& prediction);

/// Whether it is what one would start with: data parallelism alone, in micro batches of one.
bool IsPlain(const ParallelConfig& layout);

/// Indices of the candidates in the running, best first by their best prediction. Ties go to the
/// shorter step, then to the order of the space. A failed trial does not move a candidate.
std::vector<size_t> RankByPrediction(Objective objective,
                                     const std::vector<CandidateRecord>& candidates);

/// Indices of the measured candidates, best first by what was measured.
std::vector<size_t> RankByMeasurement(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

/// Indices of the candidates that still need a dry run, best first: of the `count` best by closed
/// form, those that have none.
std::vector<size_t> ChooseDryRuns(Objective objective,
                                  const std::vector<CandidateRecord>& candidates, int64_t count);

/// Indices of candidates without a dry run that a report would choose all the same, because dry
/// runs turned out slower than closed forms: of those that rank before the first one with a dry
/// run, the next few, among all, on each number of GPUs and of each precision and optimizer state.
/// None once every such choice has a dry run.
std::vector<size_t> ChooseMoreDryRuns(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

}  // namespace trimtab

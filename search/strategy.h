// Strategy: which candidates to look at more closely, and which to prove.
//
// Three tiers, each cheaper than the next and each asked only about the best of the one before:
// every legal candidate gets a closed form, the best `dry_run_count` a dry run, the best
// `prove_count` of those a measurement, in predicted order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/study.h"

namespace trimtab {

/// What "best" means.
enum class Objective {
  kThroughput,  // most tokens per second
  kMemory,      // least peak memory of the fullest rank
  kCost,        // least rank-seconds (on cpu: core-seconds) per token
};
std::string Name(Objective objective);
/// Throws UsageError for anything but throughput, memory, cost.
Objective ParseObjective(const std::string& text);

/// The figure to minimise, for a step of `run` with these figures. Ties are broken by the step
/// time.
double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes);

/// Indices of the candidates in the running that have a prediction, best first by their best
/// prediction. Candidates whose last attempt failed for good stay in their place.
std::vector<size_t> RankByPrediction(Objective objective,
                                     const std::vector<CandidateRecord>& candidates);

/// Indices of the measured candidates, best first by what was measured.
std::vector<size_t> RankByMeasurement(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

/// The candidate's trials are over: measured, out of memory, or failed or crashed too often. A
/// crash is tried once more, everything else is believed at once.
bool IsSettled(const CandidateRecord& candidate);

}  // namespace trimtab

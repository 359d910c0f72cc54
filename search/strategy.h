// Strategy: which candidates to look at more closely, and which to prove.
//
// Three tiers, each cheaper than the next and each asked only about the best of the one before:
// every legal candidate gets a closed form, the best `dry_run_count` a dry run, the best
// `prove_count` of those a measurement, in predicted order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/study.h"

namespace trimtab {

/// What "best" means.
enum class Objective {
  kThroughput,  // most tokens per second
  kMemory,      // least peak memory of the fullest rank
  kCost,  // least rank-seconds per token; on cpu, whose ranks share one machine, as throughput
};
std::string Name(Objective objective);
/// Throws UsageError for anything but throughput, memory, cost.
Objective ParseObjective(const std::string& text);

/// The figure to minimise, for a step of `run` with these figures: seconds per token, bytes, or
/// rank-seconds per token.
double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes);

/// Indices of the candidates in the running, best first by their best prediction: those with a dry
/// run, then those with a closed form only. Ties go to the shorter step, then to the order of the
/// space. A failed trial does not move a candidate.
std::vector<size_t> RankByPrediction(Objective objective,
                                     const std::vector<CandidateRecord>& candidates);

/// Indices of the measured candidates, best first by what was measured.
std::vector<size_t> RankByMeasurement(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

/// Indices of the candidates that still need a dry run, best first: of the `count` best by closed
/// form, those that have none.
std::vector<size_t> ChooseDryRuns(Objective objective,
                                  const std::vector<CandidateRecord>& candidates, int64_t count);

/// The candidate's trials are over: measured, or tried and given up. A crash is tried once more;
/// out of memory, a time-out and a failure that explains itself are believed at once.
bool IsSettled(const CandidateRecord& candidate);

/// What is proved: in predicted order, until `count` are measured. One that fails is replaced by
/// the next, up to 2 * `count` candidates in all, so that a machine on which nothing runs is found
/// out early.
struct ProofPlan {
  std::vector<size_t> candidates;  // those measured, failed and still to do, in predicted order
  int64_t measured = 0;
  int64_t failed = 0;
  std::optional<size_t> next;  // the first that is not settled

  int64_t remaining() const { return static_cast<int64_t>(candidates.size()) - measured - failed; }
};
ProofPlan PlanProof(Objective objective, const std::vector<CandidateRecord>& candidates,
                    int64_t count);

}  // namespace trimtab

// Enumeration: what a search stores of the space of its problem, and how it is counted.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "search/space/objective.h"
#include "search/study/study.h"
#include "search/walk/walkers.h"

namespace trimtab {

/// Candidates counted by what happened to them, and with that the proof of the best predicted:
/// size = visited + cut by a rule + cut_by_memory + cut_by_bound + unexplored.
struct SpaceSummary {
  int64_t size = 0;
  int64_t visited = 0;   // got a closed form
  int64_t feasible = 0;  // of those: fit
  int64_t cut_by_rule = 0;
  int64_t cut_by_memory = 0;  // cannot fit, by a bound
  int64_t cut_by_bound = 0;   // certainly behind all that are listed, by a bound
  int64_t unexplored = 0;     // left by a walk that was stopped
  /// How much better than the best predicted one of these could be, as a share of its score.
  double gap = 0;
  /// By rule that pruned anything, in the order of the rules; "memory" last: cut, or visited.
  std::vector<std::pair<std::string, int64_t>> pruned;
};

/// Stores what the search may look at closely, and counts the rest. Where nothing fits, the leanest
/// is kept, to say how much is missing. Throws UsageError where the problem has no candidate.
void StoreSpace(const Problem& problem, Objective objective, Predictor& predictor,
                const Walkers& walkers, Study& study);

/// `left_out`: those that are not among `candidates`. `gap`: of a walk that was stopped.
SpaceSummary Summarize(const PrunedCounts& left_out, const std::vector<CandidateRecord>& candidates,
                       double gap);

/// Why a run with this prediction is out of the running: what it is pruned by, and why in words.
/// Both are empty where it is not.
struct Breach {
  std::string rule;
  std::string why;
};
Breach BreachOf(const RunConfig& run, const Prediction& prediction, const SpeedRequirements& speed);
/// What candidates are pruned by that do not fit.
inline constexpr char kMemory[] = "memory";

/// Says what pruned how many, names the leanest, and goes on with `advice`, where there is any.
[[noreturn]] void ThrowInfeasible(const SpaceSummary& summary,
                                  const std::vector<CandidateRecord>& candidates,
                                  const std::string& advice = "");

}  // namespace trimtab

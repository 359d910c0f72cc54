// Space summary: what became of every candidate of a space.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "search/race/strategy.h"
#include "search/study/study.h"

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

/// `left_out`: those that are not among `candidates`. `gap`: of a walk that was stopped.
SpaceSummary Summarize(const PrunedCounts& left_out, const std::vector<CandidateRecord>& candidates,
                       double gap);

/// What candidates are counted for, or pruned by, that no rule removed.
inline constexpr char kMemory[] = "memory";             // do not fit
inline constexpr char kMemoryBound[] = "memory-bound";  // never looked at: cannot fit
inline constexpr char kBound[] = "bound";               // never looked at: cannot be listed
inline constexpr char kUnlisted[] = "unlisted";         // fit, and are not listed
inline constexpr char kUnexplored[] = "unexplored";     // left by a walk that was stopped

/// Says what pruned how many, names the leanest, and goes on with `advice`, where there is any.
[[noreturn]] void ThrowInfeasible(const SpaceSummary& summary,
                                  const std::vector<CandidateRecord>& candidates,
                                  const std::string& advice = "");

}  // namespace trimtab

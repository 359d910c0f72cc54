// The best layouts of a space, without looking at each: branch and bound.
//
// The space is walked best first. Where a layout is partly chosen, the cost model bounds what it
// can become from below (LayoutPart); what cannot fit, or is certainly behind all that would stay
// on the shortlist, is left out with all that is below it. So the shortlist is what it would be if
// every candidate had been looked at.
#pragma once

#include <cstdint>
#include <optional>

#include "search/space/space.h"
#include "search/walk/shortlist.h"
#include "search/walk/walkers.h"

namespace trimtab {

/// Of candidates that differ in the plan of recomputation alone, of one family of plans, the best
/// is offered to a list. A plan takes the place of one before it only where its score is better by
/// more than this share: what both recompute may be hidden but for the last digits of sums.
inline double PlanSlack(Objective objective) { return objective == Objective::kMemory ? 0 : 1e-6; }

/// The candidates of a space, counted by what became of them:
/// size = visited + cut by a rule + cut_by_memory + cut_by_bound + unexplored. What a requirement
/// leaves out counts as cut by a rule of its id.
struct WalkCounts {
  int64_t size = 0;
  int64_t visited = 0;        // got a closed form
  int64_t fitting = 0;        // of those
  int64_t cut_by_memory = 0;  // cannot fit, by a bound
  int64_t cut_by_bound = 0;   // cannot be on the shortlist
  int64_t unexplored = 0;     // below what a stopped walk left, whatever rules they break
  PrunedCounts cut_by_rule{};

  bool operator==(const WalkCounts&) const = default;
};

struct BestLayouts {
  std::vector<std::shared_ptr<const Shortlisted>> list;  // in the order of the space
  WalkCounts counts;
  /// Bounds how much better than the best of the list a candidate without a closed form can be, as
  /// a share of its score, but for PlanSlack. It follows from the least bound of all that was cut
  /// or left: 0 if the walk came to its end.
  double gap = 0;
};

/// How many classes `problem` has: numerics, ranks and global batches.
size_t CountClasses(const Problem& problem, Predictor& predictor);

/// What an empty `list` keeps of the candidates of `problem` that fit their ranks. The result and
/// its counts do not depend on how many threads walk, nor on the machine, unless the walk is
/// stopped: then it is what was found by then, with the gap that is left. A `predictor` that there
/// can be only one of works on one thread. Throws UsageError and InfeasibleError as RequireSensible
/// does, and WalkStopped where nothing was found by then.
BestLayouts FindBestLayouts(const Problem& problem, Shortlist list, Predictor& predictor,
                            const Walkers& walkers);

/// What `list` keeps of the candidates that fit, where it does not keep the best of all. Throws as
/// RequireSensible does, and WalkStopped.
BestLayouts FindOthers(const Problem& problem, LayoutList& list, Predictor& predictor,
                       const Walkers& walkers);

/// Asserts that the bounds of what was cut leave nothing better than the best of the list.
void RequireNoGap(const BestLayouts& best);

/// The candidate that needs the least memory, whether it fits or not. nullopt where no candidate is
/// legal.
std::optional<Shortlisted> FindLeanest(const Problem& problem, Predictor& predictor,
                                       const Walkers& walkers);

}  // namespace trimtab

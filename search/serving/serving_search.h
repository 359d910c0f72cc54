// The search for the best way to serve: every candidate is simulated, or proved not to be better
// than the best.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "search/serving/serving_evaluation.h"
#include "search/walk/walkers.h"

namespace trimtab {

struct ServingSearchResult {
  int64_t size = 0;  // of the space: the sum of what follows
  /// By rule, or by the requirement of quality that they miss while others meet all.
  std::map<std::string, int64_t> cut_by_rule{};
  int64_t cut_by_memory = 0;
  int64_t cut_by_bound = 0;    // cannot be better than the first ones
  int64_t cut_on_the_way = 0;  // likewise, which showed while they were simulated
  int64_t alike = 0;           // would run as one that was simulated: limits that it never reached
  int64_t simulated = 0;
  /// Weights and caches that are left out for their quality alone, and may do better for the
  /// objective.
  std::set<std::pair<WeightFormat, DType>> held_back{};
  std::vector<ServingEvaluation> ranking{};  // those that were simulated, the best first
  int64_t unexplored = 0;  // left when the search was stopped; not part of `size`'s other counts
  double gap = 0;          // how much better the best of these could score: 0.1 = 10 %

  const ServingEvaluation& best() const { return ranking.front(); }
};

/// Simulates candidates, the likeliest first; what comes out does not depend on the number of
/// threads. No candidate that is left out of the ranking is better than the `certain`-th in it,
/// unless `walkers` had enough before that was settled. Throws InfeasibleError that lists what
/// became of the candidates when none can serve at all, WalkStopped before any was simulated.
ServingSearchResult SearchServing(const ServingProblem& problem, const Walkers& walkers,
                                  int64_t certain = 3);

}  // namespace trimtab

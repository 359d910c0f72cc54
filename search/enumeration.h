// Enumeration: what a search stores of the space of its problem.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "search/space/objective.h"
#include "search/study/study.h"
#include "search/walk/walkers.h"
#include "search/workload/space_summary.h"

namespace trimtab {

/// Stores what the search may look at closely, and counts the rest. Where nothing fits, the leanest
/// is kept, to say how much is missing. Throws UsageError where the problem has no candidate.
void StoreSpace(const Problem& problem, Objective objective, Predictor& predictor,
                const Walkers& walkers, Study& study);

/// Why a run with this prediction is out of the running: what it is pruned by, and why in words.
/// Both are empty where it is not.
struct Breach {
  std::string rule;
  std::string why;
};
Breach BreachOf(const RunConfig& run, const Prediction& prediction, const SpeedRequirements& speed);
}  // namespace trimtab

// What makes one configuration better than another: its limits first, then the objective.
#pragma once

#include <compare>

#include "engine/infer/load/load_report.h"
#include "search/serving/serving_space.h"

namespace trimtab {

/// What is better is less. First how far a candidate is from its requirements, 0 where it meets
/// them; then the objective; then what counts among equals.
struct ServingRank {
  double strain = 0;
  double score = 0;
  double among_equals = 0;

  auto operator<=>(const ServingRank&) const = default;
};
/// Of a candidate that shows this report.
ServingRank RankOf(const ServingProblem& problem, const ServingCandidate& candidate,
                   const LoadReport& report);

}  // namespace trimtab

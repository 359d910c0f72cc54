// A visit of a candidate: `trimtab bench` in a child process, with an engine of random weights.
#pragma once

#include <functional>
#include <string>

#include "search/serving/serving_proof.h"

namespace trimtab {

struct ServingVisitOptions {
  std::string folder{};     // of configurations, results and logs; is made
  bool afresh = false;      // what lies there is of an older study, and is removed
  double time_limit_s = 0;  // after which a visit is killed; 0 = never
  std::function<bool()> cancelled = [] { return false; };  // ends a visit that runs
};

/// What serves a problem's load for ProveServing. A result that a killed driver left is taken, not
/// made again. Throws StorageError.
ServeOnce MakeServingVisitor(const ServingProblem& problem, const ServingVisitOptions& options);

}  // namespace trimtab

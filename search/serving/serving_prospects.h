// Serving prospects: the candidates that fit, each with the best that it can come to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "search/serving/best_case.h"
#include "search/serving/serving_evaluation.h"
#include "search/walk/walkers.h"

namespace trimtab {

/// A branch with what its candidates share.
struct PreparedBranch {
  ServingBranch branch{};
  std::unique_ptr<ServingMemoryModel> memory{};
  std::unique_ptr<ServingPredictor> predictor{};
  std::unique_ptr<BestCases> best{};
  int64_t most_blocks = 0;  // of a replica's cache
  EngineLimits largest{};   // of all of its candidates
};

struct ServingProspect {
  PreparedBranch* branch = nullptr;
  const ServingCandidate* candidate = nullptr;
  BestCaseOf of{};
  const Requirement* missed = nullptr;  // of quality, if any
  ServingRank bound{};
  double busy_s = 0;  // at least
  bool done = false;  // simulated, or found not to be worth it
};

struct ServingProspects {
  std::vector<std::unique_ptr<PreparedBranch>> branches{};
  std::vector<ServingProspect> all{};  // of these branches
  int64_t cut_by_memory = 0;           // candidates of branches whose weights leave no room
};

/// Measures memory and rates of each branch, and bounds its candidates. Throws WalkStopped.
ServingProspects PrepareProspects(const ServingProblem& problem,
                                  std::vector<ServingBranch> branches, const Walkers& walkers);

}  // namespace trimtab

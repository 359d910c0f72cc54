// What a search for serving found: what binds the best, and the frontier.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "search/serving/serving_search.h"

namespace trimtab {

/// What keeps the recommendation from being better, in a sentence.
std::string WhatBinds(const ServingEvaluation& best);
/// The same of one that a search recommends, with the limits of quality that hold better ones back.
std::string WhatBinds(const ServingProblem& problem, const ServingSearchResult& result,
                      const ServingEvaluation& best);

/// Of a million output tokens, for a candidate that shows this report, in the unit of the cluster's
/// price of a GPU hour; nullopt where that is not known.
std::optional<double> PricePerMillionTokens(const ServingProblem& problem,
                                            const ServingCandidate& candidate,
                                            const LoadReport& report);

/// The ranking's members that none betters in both tokens/s/GPU and tokens/s per sequence, the
/// fastest per GPU first.
std::vector<const ServingEvaluation*> ServingFrontier(const ServingSearchResult& result);
double TokensPerSecondAndGpu(const ServingEvaluation& of);
double TokensPerSecondAndUser(const ServingEvaluation& of);

}  // namespace trimtab

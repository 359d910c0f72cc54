// What a search for serving found: what binds the best, and the frontier.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "search/serving/serving_search.h"

namespace trimtab {

/// Seconds of all steps by what they are spent on.
std::map<std::string, double> BreakdownOf(const ServingPrediction& prediction);

/// Says in a sentence what keeps the candidate from being better.
std::string WhatBinds(const ServingEvaluation& candidate);

/// Of a million output tokens, for a candidate that shows this report, in the unit of the cluster's
/// price of a GPU hour; nullopt where that is not known.
std::optional<double> PricePerMillionTokens(const Cluster& cluster, int64_t gpus,
                                            double tokens_per_s);

/// Requirements that a candidate with this report does not meet, each as it would have to be
/// relaxed; empty when all are met.
std::vector<std::string> Relaxations(const ServingProblem& problem, const ServingConfig& config,
                                     const LoadReport& report);

/// Places in `services` of those that none betters in both tokens/s/GPU and tokens/s per sequence,
/// the fastest per GPU first.
struct ServiceSpeed {
  double per_gpu = 0;   // output tokens/s
  double per_user = 0;  // of one sequence
};
ServiceSpeed SpeedOf(const LoadReport& report, int64_t gpus);
std::vector<size_t> ServingFrontier(const std::vector<ServiceSpeed>& services);

}  // namespace trimtab

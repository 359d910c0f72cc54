// Problems of serving that are small enough to look at every candidate.
#pragma once

#include "cost_model/serving_stack.h"
#include "engine/infer/workload.h"
#include "search/serving/serving_space.h"

namespace trimtab {

/// A model on `cluster` under `load`, priced as our own engine on that GPU.
inline ServingProblem ProblemOn(const std::string& cluster, const std::string& model,
                                ServiceLoad load) {
  ServingProblem problem;
  problem.model = LoadModelConfig(model);
  problem.cluster = LoadCluster(cluster);
  problem.load = std::move(load);
  problem.weights = {WeightFormat::kBf16, WeightFormat::kF8};
  problem.caches = {DType::kBf16};
  problem.memory_bytes = 70'000'000'000;
  const HardwareProfile profile = problem.cluster.profile;
  problem.rates = [profile](const ServingConfig& config) {
    return ServingRatesOf(config, profile, *ServingEngineOf("trimtab", ""));
  };
  return problem;
}

}  // namespace trimtab

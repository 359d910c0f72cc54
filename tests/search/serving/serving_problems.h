// Problems of serving that are small enough to look at every candidate.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/serving/serving_stack.h"
#include "engine/families/load_config.h"
#include "engine/infer/load/workload.h"
#include "search/serving/serving_space.h"

namespace trimtab {

/// Leaves these values of a dimension alone.
inline void Allow(ServingProblem& problem, const std::string& key,
                  std::vector<std::string> values) {
  std::erase_if(problem.narrowings, [&](const Narrowing& each) { return each.key == key; });
  problem.narrowings.push_back({.key = key, .forbidden = false, .values = std::move(values)});
}

/// A model on `cluster` under `load`, priced as our own engine on that GPU.
inline ServingProblem ProblemOn(const std::string& cluster, const std::string& model,
                                ServiceLoad load) {
  ServingProblem problem;
  problem.model = LoadModelConfig(model);
  problem.cluster = LoadCluster(cluster);
  problem.load = std::move(load);
  problem.weights = {WeightFormat::kBf16, WeightFormat::kF8};
  problem.caches = {DType::kBf16};
  problem.stack = "trimtab";
  problem.memory_bytes = 70'000'000'000;
  problem.rates = [](const ServingConfig& config, const HardwareProfile& profile) {
    return ServingRatesOf(config, profile, *ServingEngineOf("trimtab", ""));
  };
  return problem;
}

/// A random load, closed or open.
inline ServiceLoad RandomLoad(std::mt19937_64& random) {
  const bool closed = random() % 2 == 0;
  const double rate = closed ? 0 : 1.0 + static_cast<double>(random() % 20);
  ServiceLoad load = {.requests = DrawRequests("uniform:20-900/uniform:2-60", 40, rate, random())};
  if (closed) load.concurrency = 1 + static_cast<int64_t>(random() % 24);
  if (random() % 2 == 0) ShareBeginnings(static_cast<int64_t>(random() % 500), load.requests);
  return load;
}

/// Lets the smaller model of the family propose tokens, or look-up.
inline void Speculate(std::mt19937_64& random, ServingProblem& problem) {
  const double acceptance = 0.1 * static_cast<double>(random() % 11);
  if (random() % 2 == 0) {
    problem.lookup_acceptance = acceptance;
    Allow(problem, "lookup", {"0", "2", "8"});
  } else {
    problem.draft = LoadModelConfig("llama3.2-1b");
    problem.draft_acceptance = acceptance;
    Allow(problem, "draft", {"0", "1", "4"});
  }
}

}  // namespace trimtab

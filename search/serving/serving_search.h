// The search for the best way to serve: every candidate is simulated, or proved not to be better
// than the best.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cost_model/serving_memory.h"
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
ServingRank RankOf(const ServingProblem& problem, int64_t gpus, const LoadReport& report);

struct ServingEvaluation {
  ServingCandidate candidate{};
  ServingPrediction prediction{};
  ServingMemory memory{};  // of the fullest rank
  ServingRank rank{};

  bool meets() const { return rank.strain == 0; }
};

struct ServingSearchResult {
  int64_t size = 0;  // of the space: the sum of what follows
  std::map<std::string, int64_t> cut_by_rule{};
  int64_t cut_by_memory = 0;
  int64_t cut_by_bound = 0;    // cannot be better than the first ones
  int64_t cut_on_the_way = 0;  // likewise, which showed while they were simulated
  int64_t alike = 0;           // would run as one that was simulated: limits that it never reached
  int64_t simulated = 0;
  std::vector<ServingEvaluation> ranking{};  // those that were simulated, the best first
  double seconds = 0;

  const ServingEvaluation& best() const { return ranking.front(); }
};

/// What is predicted of one candidate. Throws InfeasibleError where it does not fit.
ServingEvaluation EvaluateServing(const ServingProblem& problem, const ServingCandidate& candidate);

/// On so many threads; what comes out does not depend on how many. Nobody who is left out of the
/// ranking is better than the `certain`-th in it. Throws InfeasibleError that lists what went where
/// when nothing can be served at all.
ServingSearchResult SearchServing(const ServingProblem& problem, int threads, int64_t certain = 3);

/// What keeps the recommendation from being better, in a sentence.
std::string WhatBinds(const ServingEvaluation& best);

/// The ranking's members that none betters in both tokens/s/GPU and tokens/s per sequence, the
/// fastest per GPU first.
std::vector<const ServingEvaluation*> ServingFrontier(const ServingSearchResult& result);
double TokensPerSecondAndGpu(const ServingEvaluation& of);
double TokensPerSecondAndUser(const ServingEvaluation& of);

}  // namespace trimtab

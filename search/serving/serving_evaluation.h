// Serving evaluation: what one configuration takes of memory, and how it serves the load.
#pragma once

#include <cstdint>
#include <memory>

#include "cost_model/serving/serving_memory.h"
#include "cost_model/serving/serving_simulator.h"
#include "search/serving/serving_rank.h"
#include "search/serving/serving_space.h"

namespace trimtab {

struct ServingEvaluation {
  ServingCandidate candidate{};
  ServingPrediction prediction{};
  ServingMemory memory{};  // of the fullest rank
  ServingRank rank{};

  bool meets() const { return rank.strain == 0; }
};

/// Returns the model of what memory a resolved configuration takes.
std::unique_ptr<ServingMemoryModel> MemoryModelOf(const ServingProblem& problem,
                                                  const ServingConfig& resolved);

/// The rates of a resolved configuration, and of its draft model where it has one.
struct ModelRates {
  ServingRates model{};
  ServingRates draft{};
};
ModelRates RatesOf(const ServingProblem& problem, const ServingConfig& resolved);

std::unique_ptr<ServingPredictor> PredictorOf(const ServingProblem& problem,
                                              const ServingConfig& resolved,
                                              const ModelRates& rates);

/// Gives the candidate's cache what memory is left. Returns false where that does not suffice.
bool PlanMemory(int64_t memory_bytes, ServingMemoryModel& memory, ServingEvaluation& planned);

/// Predicts one candidate. Throws InfeasibleError where it does not fit.
ServingEvaluation EvaluateServing(const ServingProblem& problem, const ServingCandidate& candidate);

}  // namespace trimtab

#include "search/serving/serving_evaluation.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {

std::unique_ptr<ServingMemoryModel> MemoryModelOf(const ServingProblem& problem,
                                                  const ServingConfig& resolved) {
  const auto executor = [&problem](const ServingConfig& config) {
    return ExecutorOf(ModeOf(RunOf(config), problem.cluster), problem.cluster);
  };
  const Executor model = executor(resolved);
  const bool drafts = resolved.draft.tokens > 0;
  const Executor draft = drafts ? executor(DraftServing(resolved)) : model;
  return std::make_unique<ServingMemoryModel>(resolved, model.kind, model.threads, draft.threads);
}

ModelRates RatesOf(const ServingProblem& problem, const ServingConfig& resolved) {
  ModelRates rates = {.model = problem.rates(resolved, problem.cluster.profile)};
  if (resolved.draft.tokens > 0)
    rates.draft = problem.rates(DraftServing(resolved), problem.cluster.profile);
  return rates;
}

std::unique_ptr<ServingPredictor> PredictorOf(const ServingProblem& problem,
                                              const ServingConfig& resolved,
                                              const ModelRates& rates) {
  ServingSpeculation speculation = {.acceptance = problem.AcceptanceOf(resolved)};
  if (resolved.draft.tokens > 0) {
    const ServingConfig draft = DraftServing(resolved);
    speculation.draft =
        std::make_shared<ServingPredictor>(draft.model, ServingLayoutOf(draft), rates.draft);
  }
  return std::make_unique<ServingPredictor>(problem.model, ServingLayoutOf(resolved), rates.model,
                                            std::move(speculation));
}

bool PlanMemory(int64_t memory_bytes, ServingMemoryModel& memory, ServingEvaluation& planned) {
  ServingConfig& config = planned.candidate.config;
  const int64_t longest = CeilDiv(config.limits.sequence_length, config.block_size);
  const int64_t room = memory.BlocksWithin(memory_bytes, config.limits);
  if (room < longest) return false;
  config.cache_blocks = std::min(room, config.limits.sequences * longest);
  planned.memory = memory.Of(config.limits, config.cache_blocks);
  config = ResolveServing(config);
  return true;
}

ServingEvaluation EvaluateServing(const ServingProblem& problem,
                                  const ServingCandidate& candidate) {
  ServingEvaluation evaluation = {.candidate = candidate};
  const ServingConfig resolved = ResolveServing(candidate.config);
  const auto memory = MemoryModelOf(problem, resolved);
  if (!PlanMemory(problem.memory_bytes, *memory, evaluation)) {
    const int64_t one = CeilDiv(resolved.limits.sequence_length, resolved.block_size);
    const ServingMemory least = memory->Of(resolved.limits, one);
    throw InfeasibleError(fmt::format(
        "needs {} of memory per rank with a cache for one sequence of {} tokens "
        "({} of weights, {} for a step{}); only {} is available",
        FormatBytes(least.total()), resolved.limits.sequence_length, FormatBytes(least.weights),
        FormatBytes(least.step),
        least.draft > 0 ? fmt::format(", {} of the draft model", FormatBytes(least.draft)) : "",
        FormatBytes(problem.memory_bytes)));
  }
  const auto predictor = PredictorOf(problem, resolved, RatesOf(problem, resolved));
  evaluation.prediction =
      predictor->Predict(evaluation.candidate.config, problem.load, problem.CopyOf(resolved));
  evaluation.rank = RankOf(problem, candidate, evaluation.prediction.report);
  return evaluation;
}

}  // namespace trimtab

#include "search/serving/serving_prospects.h"

#include <algorithm>
#include <utility>

#include "engine/base/on_threads.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

/// Leaves a branch without blocks where its weights leave no room for the longest request.
void PrepareMemory(const ServingProblem& problem, PreparedBranch& prepared) {
  const ServingConfig resolved = ResolveServing(prepared.branch.config);
  prepared.memory = MemoryModelOf(problem, resolved);
  const int64_t longest = CeilDiv(resolved.limits.sequence_length, resolved.block_size);
  const int64_t left = problem.memory_bytes - prepared.memory->weight_bytes();
  const int64_t blocks = left / prepared.memory->block_bytes();
  prepared.most_blocks = blocks < longest ? 0 : blocks;
  prepared.largest = resolved.limits;
  for (const ServingCandidate& each : prepared.branch.candidates) {
    const EngineLimits& limits = each.config.limits;
    EngineLimits& largest = prepared.largest;
    largest.sequences = std::max(largest.sequences, limits.sequences);
    largest.tokens_per_step = std::max(largest.tokens_per_step, limits.tokens_per_step);
  }
}

void PreparePrices(const ServingProblem& problem, const ModelRates& rates,
                   PreparedBranch& prepared) {
  const ServingConfig resolved = ResolveServing(prepared.branch.config);
  prepared.predictor = PredictorOf(problem, resolved, rates);
  prepared.best = std::make_unique<BestCases>(*prepared.predictor, problem.load, resolved);
}

/// Returns false where the cache surely holds all that a replica works on at once. Only draft
/// models make a difference of it, so it is true without.
bool MayPreempt(const ServingProblem& problem, const PreparedBranch& branch,
                const ServingCandidate& candidate) {
  const ServingConfig& config = candidate.config;
  if (config.draft.tokens == 0) return true;
  const int64_t longest = CeilDiv(config.limits.sequence_length, config.block_size);
  const int64_t running =
      std::min(config.limits.sequences, MostInFlight(problem.load, config.answering()));
  return branch.memory->BlocksWithin(problem.memory_bytes, config.limits, branch.largest) <
         running * longest;
}

ServingProspect ProspectOf(const ServingProblem& problem, PreparedBranch& branch,
                           const ServingCandidate& candidate) {
  const BestCaseOf of = {.limits = candidate.config.limits,
                         .blocks = branch.most_blocks,
                         .replicas = candidate.config.layout.dp,
                         .prefill = candidate.config.prefill,
                         .may_preempt = MayPreempt(problem, branch, candidate)};
  const BestCase best = branch.best->Rough(of);
  return {.branch = &branch,
          .candidate = &candidate,
          .of = of,
          .missed = problem.MissedQuality(candidate.config),
          .bound = RankOf(problem, candidate, best.report),
          .busy_s = best.busy_s};
}

}  // namespace

ServingProspects PrepareProspects(const ServingProblem& problem,
                                  std::vector<ServingBranch> branches, const Walkers& walkers) {
  ServingProspects prepared;
  for (ServingBranch& each : branches) {
    prepared.branches.emplace_back(std::make_unique<PreparedBranch>())->branch = std::move(each);
  }
  OnThreads(walkers.threads, prepared.branches.size(),
            [&](size_t i) { PrepareMemory(problem, *prepared.branches[i]); });
  std::erase_if(prepared.branches, [&](const auto& branch) {
    const bool fits = branch->most_blocks > 0;
    if (!fits) prepared.cut_by_memory += std::ssize(branch->branch.candidates);
    return !fits;
  });
  // Measured one after the other where they are measured.
  std::vector<ModelRates> rates;
  for (const auto& each : prepared.branches) {
    walkers.GoOnOrThrow();
    rates.push_back(RatesOf(problem, ResolveServing(each->branch.config)));
  }
  OnThreads(walkers.threads, prepared.branches.size(),
            [&](size_t i) { PreparePrices(problem, rates[i], *prepared.branches[i]); });
  for (const auto& branch : prepared.branches) {
    for (const ServingCandidate& each : branch->branch.candidates) {
      prepared.all.push_back(ProspectOf(problem, *branch, each));
    }
  }
  return prepared;
}

}  // namespace trimtab

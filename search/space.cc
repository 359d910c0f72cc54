#include "search/space.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cost_model/numerics.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

std::vector<int64_t> Divisors(int64_t n, int64_t largest) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= std::min(n, largest); ++i) {
    if (n % i == 0) divisors.push_back(i);
  }
  return divisors;
}

/// How many ranks a run may have: on cpu that is itself a choice.
std::vector<int64_t> WorldSizes(const Problem& problem) {
  if (problem.cluster.device != "cpu") return {problem.cluster.max_ranks};
  const int64_t most = problem.max_ranks > 0 ? problem.max_ranks : problem.cluster.max_ranks;
  std::vector<int64_t> sizes;
  for (int64_t ranks = 1; ranks <= most; ranks *= 2) sizes.push_back(ranks);
  return sizes;
}

int64_t ThreadsOf(const Problem& problem, int64_t ranks) {
  if (problem.cluster.device != "cpu") return 1;
  return std::max<int64_t>(1, problem.cluster.cores / ranks);
}

/// What all candidates of one world size share.
RunConfig BaseRun(const Problem& problem, int64_t ranks) {
  RunConfig run;
  run.model = problem.model;
  run.optimizer = problem.optimizer;
  run.device = problem.cluster.device;
  run.global_batch = problem.global_batch;
  run.sequence_length = problem.sequence_length;
  run.steps = problem.steps;
  run.seed = problem.seed;
  run.data = problem.data;
  run.threads_per_rank = ThreadsOf(problem, ranks);
  run.layout.dp = ranks;
  run.memory_per_rank_bytes = MemoryLimitBytes(problem, run);
  return run;
}

/// Layouts with every precision and optimizer state of the problem, each combination once: two
/// names may mean the same under one precision.
std::vector<ParallelConfig> NumericsOf(const Problem& problem) {
  std::vector<ParallelConfig> numerics;
  std::set<std::string> seen;
  for (const Precision precision : problem.precisions) {
    std::vector<std::string> states;
    for (const std::string& state : problem.optimizer_states) {
      if (state != "auto") {
        states.push_back(state);
        continue;
      }
      for (std::string& each : EveryOptimizerState(precision)) states.push_back(std::move(each));
    }
    for (const std::string& state : states) {
      ParallelConfig layout;
      layout.precision = precision;
      SetOptimizerState(state, layout);
      if (seen.insert(ToString(layout)).second) numerics.push_back(layout);
    }
  }
  return numerics;
}

/// Appends every combination of the choices that do not change the shape of the groups.
void AppendVariants(const Problem& problem, RunConfig run, std::vector<RunConfig>& candidates) {
  for (const int64_t micro_batch : Divisors(problem.global_batch, problem.max_micro_batch)) {
    for (const RecomputeKind recompute : {RecomputeKind::kNone, RecomputeKind::kFull}) {
      for (const int64_t zero : {0, 1}) {
        run.layout.micro_batch = micro_batch;
        run.layout.recompute = {.kind = recompute, .num_layers = -1};
        run.layout.zero = zero;
        candidates.push_back(run);
      }
    }
  }
}

/// Appends every layout on `ranks` ranks under the precision and optimizer state of `numerics`.
void AppendLayouts(const Problem& problem, const ParallelConfig& numerics, int64_t ranks,
                   std::vector<RunConfig>& candidates) {
  RunConfig run = BaseRun(problem, ranks);
  run.layout.precision = numerics.precision;
  run.layout.master = numerics.master;
  run.layout.moments = numerics.moments;
  run.layout.gradients = numerics.gradients;
  for (const int64_t tp : Divisors(ranks, ranks)) {
    run.layout.tp = tp;
    run.layout.dp = ranks / tp;
    run.layout.sequence_parallel = false;
    AppendVariants(problem, run, candidates);
    if (tp == 1) continue;
    run.layout.sequence_parallel = true;
    AppendVariants(problem, run, candidates);
  }
}

void RequireSensible(const Problem& problem) {
  if (problem.global_batch < 1 || problem.sequence_length < 1) {
    throw UsageError(
        fmt::format("the global batch ({}) and sequence length ({}) must be at least 1",
                    problem.global_batch, problem.sequence_length));
  }
  if (problem.precisions.empty() || problem.optimizer_states.empty()) {
    throw UsageError("expected at least one precision and one optimizer state");
  }
  if (problem.max_ranks < 0 || problem.max_micro_batch < 1 || problem.memory_per_rank_bytes < 0) {
    throw UsageError("limits on ranks, micro batch and memory must be positive");
  }
}

}  // namespace

nlohmann::json ToJson(const Problem& problem) {
  nlohmann::json precisions = nlohmann::json::array();
  for (const Precision each : problem.precisions) precisions.push_back(Name(each));
  return {
      {"model", ToJson(problem.model)},
      {"cluster",
       {{"name", problem.cluster.name},
        {"device", problem.cluster.device},
        {"nodes", problem.cluster.nodes},
        {"ranks_per_node", problem.cluster.ranks_per_node},
        {"max_ranks", problem.cluster.max_ranks},
        {"cores", problem.cluster.cores},
        {"memory_bytes", problem.cluster.memory_bytes}}},
      {"global_batch", problem.global_batch},
      {"sequence_length", problem.sequence_length},
      {"precisions", precisions},
      {"optimizer_states", problem.optimizer_states},
      {"memory_per_rank_bytes", problem.memory_per_rank_bytes},
      {"max_ranks", problem.max_ranks},
      {"max_micro_batch", problem.max_micro_batch},
      // The settings of a run that are not part of its layout, in the form of RUN.json.
      {"optimizer", ToJson(BaseRun(problem, 1)).at("optimizer")},
      {"seed", problem.seed},
      {"data", problem.data},
      {"steps", problem.steps},
  };
}

std::vector<RunConfig> EnumerateCandidates(const Problem& problem) {
  RequireSensible(problem);
  std::vector<RunConfig> candidates;
  for (const ParallelConfig& numerics : NumericsOf(problem)) {
    for (const int64_t ranks : WorldSizes(problem)) {
      AppendLayouts(problem, numerics, ranks, candidates);
    }
  }
  return candidates;
}

int64_t MemoryLimitBytes(const Problem& problem, const RunConfig& run) {
  if (problem.memory_per_rank_bytes > 0) return problem.memory_per_rank_bytes;
  if (problem.cluster.device != "cpu") return problem.cluster.memory_bytes;
  return problem.cluster.memory_bytes / run.layout.world_size();
}

std::string CandidateKey(const RunConfig& run) { return ToString(run.layout); }

}  // namespace trimtab

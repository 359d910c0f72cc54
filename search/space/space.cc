#include "search/space/space.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"
#include "search/space/space_tree.h"

namespace trimtab {
void RequireSensible(const Problem& problem) {
  const std::vector<int64_t>& batches = problem.global_batches;
  const int64_t smallest =
      batches.empty() ? problem.global_batch : *std::min_element(batches.begin(), batches.end());
  if (smallest < 1 || problem.sequence_length < 1) {
    throw UsageError(
        fmt::format("the global batch ({}) and sequence length ({}) must be at least 1", smallest,
                    problem.sequence_length));
  }
  RequireLegalModel(problem.model);
  RequireMeasurable(problem);
  if (problem.cluster.device != DeviceKind::kCpu) AllowedGpus(problem);
  if (problem.precisions.empty() || problem.optimizer_states.empty()) {
    throw UsageError("expected at least one precision and one optimizer state");
  }
  if (problem.max_ranks < 0 || problem.max_micro_batch < 1 || problem.memory_per_rank_bytes < 0) {
    throw UsageError("limits on ranks, micro batch and memory must be positive");
  }
}

SpaceCounts WalkSpace(const Problem& problem,
                      const std::function<void(const RunConfig& run)>& visit) {
  RequireSensible(problem);
  SpaceTree tree(problem);
  SpaceCounts counts;
  const auto enters = [&](size_t depth, const RunConfig&) {
    if (visit || depth + 1 < tree.depth()) return true;
    counts.legal += tree.CountBelow(depth);
    return false;
  };
  tree.Walk(0, enters, [&](const RunConfig& candidate) {
    ++counts.legal;
    visit(candidate);
  });
  counts.pruned = ByRule(tree.TakePruned());
  counts.enumerated = counts.legal;
  for (const auto& [rule, count] : counts.pruned) counts.enumerated += count;
  return counts;
}

int64_t MemoryLimitBytes(const Problem& problem, const RunConfig& run) {
  const int64_t own = MemoryOfRank(problem.cluster, run.layout.world_size());
  const int64_t limit = problem.memory_per_rank_bytes > 0 ? problem.memory_per_rank_bytes : own;
  const int64_t headroom = HeadroomBytes(problem);
  // No limit at all is 0.
  return headroom == 0 || limit == 0 ? limit : std::max<int64_t>(1, limit - headroom);
}

bool IsPlain(const ParallelConfig& layout) {
  ParallelConfig plain;
  plain.dp = layout.dp;
  plain.numerics = layout.numerics;
  return layout == plain;
}

std::string CandidateKey(const RunConfig& run, bool several_batches) {
  const std::string layout = ToString(run.layout);
  return several_batches ? fmt::format("gbs={},{}", run.global_batch, layout) : layout;
}

}  // namespace trimtab

#include "search/space/space_row_parts.h"

namespace trimtab {

SpaceRow ZeroRow() {
  return {.name = "zero",
          .applies = Always,
          .values = Fixed<0, 1, 2, 3>,
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.zero = value; },
          .settles = {"zero-requires-dp"},
          .alike = Alike<&ParallelConfig::zero>};
}

/// Replicas that are sharded over all data-parallel ranks or, where these span nodes, over those of
/// a node: within it links are alike, so that smaller replicas would only take more memory.
SpaceRow ShardRow() {
  return {.name = "shard",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                const ParallelConfig& layout = bound.layout;
                return layout.zero >= 1 &&
                       layout.tp * layout.cp * layout.dp > problem.cluster.ranks_per_node;
              },
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const ParallelConfig& layout = bound.layout;
                AppendDivisors(layout.dp * layout.cp, problem.cluster.ranks_per_node / layout.tp,
                               values);
                const int64_t in_node = values.empty() ? 1 : values.back();
                values = {0};
                if (in_node > 1) values.push_back(in_node);
              },
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.shard = value; },
          .settles = {},
          .alike = Alike<&ParallelConfig::shard>,
          .readers = Readers::kNone};
}

SpaceRow ReshardRow() {
  return {.name = "reshard_after_forward",
          .applies = [](const Problem&, const RunConfig& bound) { return bound.layout.zero == 3; },
          .values = Fixed<1, 0>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.reshard_after_forward = value != 0; },
          .settles = {},
          .alike = Alike<&ParallelConfig::reshard_after_forward>,
          .readers = Readers::kNone};
}

SpaceRow ParamGatherRow() {
  return {.name = "overlap_param_gather",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                return Overlaps(problem) && (bound.layout.zero == 1 || bound.layout.zero == 2);
              },
          .values = Fixed<0, 1>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.overlap_param_gather = value != 0; },
          .settles = {},
          .alike = Alike<&ParallelConfig::overlap_param_gather>,
          .readers = Readers::kNone};
}

}  // namespace trimtab

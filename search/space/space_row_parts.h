// The rows of the space, by the file that makes them, and what they share.
#pragma once

#include <cstdint>
#include <vector>

#include "search/space/space_rows.h"

namespace trimtab {

// space_rows_numerics.cc
SpaceRow PrecisionRow();
SpaceRow OptimizerStateRow();
// space_rows_ranks.cc
SpaceRow RanksRow();
SpaceRow GlobalBatchRow();
SpaceRow TensorParallelRow();
SpaceRow SequenceParallelRow();
SpaceRow ContextParallelRow();
SpaceRow ContextMessagesRow();
SpaceRow TpOverlapRow();
// space_rows_experts.cc
SpaceRow ExpertParallelRow();
SpaceRow ExpertTensorParallelRow();
SpaceRow DispatchRow();
// space_rows_passes.cc
SpaceRow MicroBatchRow();
SpaceRow RecomputeRow();
SpaceRow PipelineParallelRow();
SpaceRow ScheduleRow();
SpaceRow VirtualPipelineRow();
SpaceRow RecomputePlanRow();
// space_rows_shards.cc
SpaceRow ZeroRow();
SpaceRow ShardRow();
SpaceRow ReshardRow();
SpaceRow ParamGatherRow();

/// Values are numbers; what they are numbers of is the row's own business.
using Values = std::vector<int64_t>;

/// Where a dimension exists everywhere.
inline bool Always(const Problem&, const RunConfig&) { return true; }

template <int64_t... kValues>
void Fixed(const Problem&, const RunConfig&, Values& values) {
  values.insert(values.end(), {kValues...});
}

/// Whether two layouts agree in these members.
template <auto... kMembers>
bool Alike(const RunConfig& a, const RunConfig& b) {
  return ((a.layout.*kMembers == b.layout.*kMembers) && ...);
}

/// Appends the divisors of `n` up to `largest`, ascending.
void AppendDivisors(int64_t n, int64_t largest, Values& values);

/// The ranks that no row has used yet are data parallel; a row takes its share of them.
void TakeRanks(int64_t count, int64_t& size, ParallelConfig& layout);

/// Ranks that are not yet told apart by the experts they hold, nor by their pipeline stage.
int64_t ExpertRanks(const ParallelConfig& layout);

/// Whether messages get on beside ops: those of a cpu are done when they are submitted.
bool Overlaps(const Problem& problem);

}  // namespace trimtab

#include "engine/parallel/sharded_data_parallel.h"

namespace trimtab {

ShardedDataParallel::ShardedDataParallel(const ParallelContext& parallel, ParameterStore& store,
                                         Device& device, Fp8State* fp8, Parameter* shared)
    : shards_(parallel, store, device),
      reducer_(parallel, shards_, shared),
      gatherer_(parallel, shards_, fp8),
      updates_(parallel, shards_, fp8),
      keep_(KeepOf(parallel.layout)) {}

ShardedDataParallel::Keep ShardedDataParallel::KeepOf(const ParallelConfig& layout) {
  if (layout.reshard_after_forward) return Keep::kForPass;
  // The passes of a pipeline's micro batches mix.
  return layout.pp > 1 ? Keep::kForStep : Keep::kUntilBackward;
}

void ShardedDataParallel::Acquire(size_t unit, std::optional<size_t> next) {
  const std::vector<ParameterUnit>& units = shards_.store().units();
  gatherer_.Acquire(unit);
  for (const size_t other : units[unit].also_uses) gatherer_.Acquire(other);
  if (!next) return;
  gatherer_.Prefetch(*next);
  for (const size_t other : units[*next].also_uses) gatherer_.Prefetch(other);
}

void ShardedDataParallel::Release(size_t unit) {
  gatherer_.Release(unit);
  for (const size_t other : shards_.store().units()[unit].also_uses) gatherer_.Release(other);
}

void ShardedDataParallel::BeginForward(size_t unit, std::optional<size_t> next) {
  if (shards_.weights_sharded()) return Acquire(unit, next);
  shards_.UseWeights(unit);
  updates_.Acquire(unit);
  for (const size_t other : shards_.store().units()[unit].also_uses) updates_.Acquire(other);
}

void ShardedDataParallel::EndForward(size_t unit) {
  if (!shards_.weights_sharded() || keep_ == Keep::kForStep) return;
  const bool needed_again = shards_.store().units()[unit].reads_weights_backward;
  if (keep_ == Keep::kForPass || !needed_again) Release(unit);
}

void ShardedDataParallel::BeginBackward(size_t unit, std::optional<size_t> next) {
  if (shards_.weights_sharded()) Acquire(unit, next);
}

void ShardedDataParallel::EndBackward(size_t unit) {
  if (shards_.weights_sharded() && keep_ != Keep::kForStep) Release(unit);
}

void ShardedDataParallel::FinishStep() {
  gatherer_.ReleaseAll();
  reducer_.FinishStep();
}

void ShardedDataParallel::GatherUpdated() {
  if (!shards_.weights_sharded()) updates_.Gather();
}

void ShardedDataParallel::AwaitWeights() {
  updates_.Await();
  if (!shards_.weights_sharded()) shards_.UseAllWeights();
}

void ShardedDataParallel::WeightsChanged() {
  // Sharded ones get fp8 copies whenever they are gathered.
  if (!shards_.weights_sharded()) updates_.Changed();
}

}  // namespace trimtab

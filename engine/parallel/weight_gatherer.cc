#include "engine/parallel/weight_gatherer.h"

namespace trimtab {

WeightGatherer::WeightGatherer(const ParallelContext& parallel, ParameterShards& shards,
                               Fp8State* fp8)
    : parallel_(parallel), shards_(shards), fp8_(fp8), units_(shards.store().units().size()) {}

void WeightGatherer::Prefetch(size_t unit) {
  Unit& state = units_[unit];
  const Bucket& bucket = shards_.buckets()[shards_.BucketOf(unit)];  // the unit's alone
  if (state.weights.defined() || bucket.range.numel() == 0) return;
  const Tensor own = shards_.Weights(shards_.PartOf(bucket));
  Communicator& group = shards_.shard_group(bucket.grid);
  if (group.size() == 1) {
    state.weights = own;  // whole
    return;
  }
  state.weights = Tensor::Empty(shards_.device(), {bucket.range.numel()}, shards_.weights().dtype(),
                                MemoryTag::kCommunication);
  state.gather = group.AllGatherAsync(own, state.weights);
}

void WeightGatherer::Acquire(size_t unit) {
  Unit& state = units_[unit];
  Prefetch(unit);
  if (state.ready || !state.weights.defined()) return;
  state.gather.Wait();
  shards_.store().BindWeights(unit, state.weights);
  if (fp8_ != nullptr) fp8_->QuantizeUnit(parallel_, unit);
  state.ready = true;
}

void WeightGatherer::Release(size_t unit) {
  if (!units_[unit].ready) return;
  shards_.store().BindWeights(unit, {});
  if (fp8_ != nullptr) fp8_->ReleaseUnit(unit);
  units_[unit] = {};
}

void WeightGatherer::ReleaseAll() {
  for (size_t unit = 0; unit < units_.size(); ++unit) Release(unit);
}

}  // namespace trimtab

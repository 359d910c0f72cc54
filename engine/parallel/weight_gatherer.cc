#include "engine/parallel/weight_gatherer.h"

namespace trimtab {

WeightGatherer::WeightGatherer(const ParallelContext& parallel, ParameterShards& shards,
                               Fp8State* fp8)
    : parallel_(parallel), shards_(shards), fp8_(fp8), units_(shards.store().units().size()) {}

void WeightGatherer::Prefetch(size_t unit) {
  Unit& state = units_[unit];
  if (state.weights.defined()) return;
  const Bucket& bucket = shards_.buckets()[unit];  // in this stage they are the same
  state.weights = Tensor::Empty(shards_.device(), {bucket.range.numel()},
                                shards_.weights().dtype(), MemoryTag::kCommunication);
  state.gather =
      parallel_.dp->AllGatherAsync(shards_.Weights(shards_.PartOf(bucket)), state.weights);
}

void WeightGatherer::Acquire(size_t unit) {
  Unit& state = units_[unit];
  if (state.ready) return;
  Prefetch(unit);
  state.gather.Wait();
  shards_.store().BindWeights(unit, state.weights);
  if (fp8_ != nullptr) fp8_->QuantizeUnit(parallel_, unit);
  state.ready = true;
}

void WeightGatherer::Release(size_t unit) {
  shards_.store().BindWeights(unit, {});
  if (fp8_ != nullptr) fp8_->ReleaseUnit(unit);
  units_[unit] = {};
}

}  // namespace trimtab

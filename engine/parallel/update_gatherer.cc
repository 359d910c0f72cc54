#include "engine/parallel/update_gatherer.h"

#include <exception>

#include "engine/base/log.h"

namespace trimtab {

UpdateGatherer::UpdateGatherer(const ParallelContext& parallel, ParameterShards& shards,
                               Fp8State* fp8)
    : parallel_(parallel),
      shards_(shards),
      fp8_(fp8),
      beside_forward_(parallel.layout.overlap_param_gather),
      gathers_(shards.trained_buckets().size()),
      changed_(shards.store().units().size(), true) {}

UpdateGatherer::~UpdateGatherer() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    Await();
  } catch (const std::exception& error) {
    LogWarning("weights that were still being gathered are lost: {}", error.what());
  }
}

void UpdateGatherer::Gather() {
  if (shards_.updates_sharded()) {
    for (size_t i = 0; i < gathers_.size(); ++i) {
      const Bucket& bucket = shards_.buckets()[i];
      if (bucket.range.numel() == 0) continue;
      Tensor all = shards_.weights().Slice(bucket.range.begin, {bucket.range.numel()});
      gathers_[i] = shards_.shard_group(bucket.grid)
                        .AllGatherAsync(shards_.Weights(shards_.PartOf(bucket)), all);
    }
    if (!beside_forward_) Await();
  }
  Changed();
}

void UpdateGatherer::Changed() {
  if (fp8_ == nullptr) return;
  if (!beside_forward_) {
    shards_.UseAllWeights();
    return fp8_->QuantizeWeights(parallel_);
  }
  changed_.assign(changed_.size(), true);
}

void UpdateGatherer::Acquire(size_t unit) {
  if (!beside_forward_) return;
  const size_t bucket = shards_.BucketOf(unit);
  if (bucket < gathers_.size()) AwaitBucket(bucket);
  if (fp8_ != nullptr && changed_[unit]) fp8_->QuantizeUnit(parallel_, unit);
  changed_[unit] = false;
}

void UpdateGatherer::Await() {
  for (size_t bucket = 0; bucket < gathers_.size(); ++bucket) AwaitBucket(bucket);
}

void UpdateGatherer::AwaitBucket(size_t bucket) { gathers_[bucket].Wait(); }

}  // namespace trimtab

#include "engine/parallel/parameter_shards.h"

#include <algorithm>

#include "engine/config/precision.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

Tensor Zeros(Device& device, int64_t numel, DType dtype, MemoryTag tag) {
  Tensor tensor = Tensor::Empty(device, {numel}, dtype, tag);
  Fill(tensor, 0.0f);
  return tensor;
}

}  // namespace

std::vector<Bucket> PlanBuckets(const std::vector<ParameterUnit>& units, int64_t min_numel,
                                const ShardCounts& shards) {
  std::vector<Bucket> buckets;  // the last units first
  for (size_t i = units.size(); i-- > 0;) {
    const FlatRange& range = units[i].range;
    const bool alone = units[i].users > 0 || (i + 1 < units.size() && units[i + 1].users > 0);
    if (buckets.empty() || alone || buckets.back().range.numel() >= min_numel) {
      buckets.push_back(
          {.end_unit = i + 1, .range = {range.end, range.end}, .grid = units[i].grid});
    }
    buckets.back().first_unit = i;
    buckets.back().range.begin = range.begin;
  }
  std::reverse(buckets.begin(), buckets.end());
  int64_t shard_begin = 0;
  for (Bucket& bucket : buckets) {
    bucket.shard_begin = shard_begin;
    shard_begin += bucket.range.numel() / shards.of(bucket.grid);
  }
  return buckets;
}

ParameterShards::ParameterShards(const ParallelContext& parallel, ParameterStore& store,
                                 Device& device)
    : store_(store), stage_(parallel.dp->size() > 1 ? parallel.layout.zero : 0) {
  const auto groups = [this](Communicator& all, Communicator& within, Communicator& across) {
    if (stage_ == 0) return Groups{.shard = &within, .replica = &all};
    return Groups{.shard = across.size() > 1 ? &within : &all, .replica = &across};
  };
  dense_ = groups(*parallel.dp, *parallel.shard, *parallel.replica);
  experts_ = groups(*parallel.edp, *parallel.expert_shard, *parallel.expert_replica);
  const ShardCounts shards = {.dense = dense_.shard->size(), .experts = experts_.shard->size()};
  store.Place(shards);
  store.buffers().Allocate(device);
  const TrainingTypes types = TypesOf(parallel.layout);
  const int64_t min_numel = gradients_sharded() ? 0 : kBucketBytes / SizeOf(types.gradients);
  buckets_ = PlanBuckets(store.units(), min_numel, shards);
  for (const Bucket& bucket : buckets_) numel_ += PartOf(bucket).numel;
  weights_ = Zeros(device, weights_sharded() ? numel() : store.numel(), types.weights,
                   MemoryTag::kWeights);
  gradients_ = Zeros(device, gradients_sharded() ? numel() : store.numel(), types.gradients,
                     MemoryTag::kGradients);
  for (size_t unit = 0; unit < store.units().size(); ++unit) {
    const FlatRange& range = store.units()[unit].range;
    const Shape shape = {range.numel()};
    if (!weights_sharded()) store.BindWeights(unit, weights_.Slice(range.begin, shape));
    if (!gradients_sharded()) store.BindGradients(unit, gradients_.Slice(range.begin, shape));
  }
}

OwnedPart ParameterShards::PartOf(const Bucket& bucket) const {
  const Communicator& ranks = shard_group(bucket.grid);
  const int64_t numel = bucket.range.numel() / ranks.size();
  return {bucket.range.begin + ranks.rank() * numel, bucket.shard_begin, numel};
}

OwnedPart ParameterShards::Within(const FlatRange& range) const {
  const auto bucket =
      std::partition_point(buckets_.begin(), buckets_.end(),
                           [&range](const Bucket& each) { return each.range.end <= range.begin; });
  if (bucket == buckets_.end()) return {};
  const OwnedPart own = PartOf(*bucket);
  const int64_t begin = std::max(range.begin, own.begin);
  const int64_t end = std::min(range.end, own.begin + own.numel);
  if (begin >= end) return {};
  return {begin, own.shard_begin + begin - own.begin, end - begin};
}

Tensor ParameterShards::Weights(const OwnedPart& part) const {
  return weights_.Slice(weights_sharded() ? part.shard_begin : part.begin, {part.numel});
}

Tensor ParameterShards::Gradients(const OwnedPart& part) const {
  return gradients_.Slice(gradients_sharded() ? part.shard_begin : part.begin, {part.numel});
}

}  // namespace trimtab

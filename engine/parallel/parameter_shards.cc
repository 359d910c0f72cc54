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

std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& unit_numel, int64_t min_numel,
                                int64_t shards) {
  std::vector<Bucket> buckets;  // the last units first
  int64_t numel = 0;
  for (size_t unit = unit_numel.size(); unit-- > 0;) {
    if (buckets.empty() || numel >= min_numel) {
      buckets.push_back({.end_unit = unit + 1});
      numel = 0;
    }
    buckets.back().first_unit = unit;
    numel += unit_numel[unit];
  }
  std::reverse(buckets.begin(), buckets.end());
  int64_t begin = 0;
  for (Bucket& bucket : buckets) {
    bucket.range = {begin, begin};
    for (size_t unit = bucket.first_unit; unit < bucket.end_unit; ++unit) {
      bucket.range.end += unit_numel[unit];
    }
    bucket.shard_begin = begin / shards;
    begin = bucket.range.end;
  }
  return buckets;
}

ParameterShards::ParameterShards(const ParallelContext& parallel, ParameterStore& store,
                                 Device& device)
    : parallel_(parallel),
      store_(store),
      stage_(parallel.dp->size() > 1 ? parallel.layout.zero : 0),
      shards_(stage_ >= 1 ? parallel.dp->size() : 1) {
  store.Place(shards_);
  const TrainingTypes types = TypesOf(parallel.layout);
  std::vector<int64_t> unit_numel;
  for (const ParameterUnit& unit : store.units()) unit_numel.push_back(unit.range.numel());
  const int64_t min_numel = gradients_sharded() ? 1 : kBucketBytes / SizeOf(types.gradients);
  buckets_ = PlanBuckets(unit_numel, min_numel, shards_);
  weights_ = Zeros(device, weights_sharded() ? numel() : store.numel(), types.weights,
                   MemoryTag::kWeights);
  gradients_ = Zeros(device, gradients_sharded() ? numel() : store.numel(), types.gradients,
                     MemoryTag::kGradients);
  for (size_t unit = 0; unit < unit_numel.size(); ++unit) {
    const FlatRange& range = store.units()[unit].range;
    const Shape shape = {range.numel()};
    if (!weights_sharded()) store.BindWeights(unit, weights_.Slice(range.begin, shape));
    if (!gradients_sharded()) store.BindGradients(unit, gradients_.Slice(range.begin, shape));
  }
}

OwnedPart ParameterShards::PartOf(const Bucket& bucket) const {
  const int64_t numel = bucket.range.numel() / shards_;
  const int64_t rank = updates_sharded() ? parallel_.dp->rank() : 0;
  return {bucket.range.begin + rank * numel, bucket.shard_begin, numel};
}

OwnedPart ParameterShards::Within(const FlatRange& range) const {
  const auto bucket =
      std::partition_point(buckets_.begin(), buckets_.end(), [&range](const Bucket& each) {
        return each.range.end <= range.begin;
      });
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

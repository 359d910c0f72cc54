#include "engine/parallel/parameter_shards.h"

#include <algorithm>

#include "engine/config/layout/precision.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/optimizer/adamw.h"

namespace trimtab {
namespace {

Tensor Zeros(Device& device, int64_t numel, DType dtype, MemoryTag tag) {
  Tensor tensor = Tensor::Empty(device, {numel}, dtype, tag);
  Fill(tensor, 0.0f);
  return tensor;
}

/// Writes what `split` makes of each value: the 16 bits of a weight, or those below it.
template <typename Split>
void WriteBits(Tensor tensor, std::span<const float> values, const Split& split) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), split);
  CopyBytesFromHost(tensor, std::as_bytes(std::span(bits)));
}

std::vector<uint16_t> ReadBits(const Tensor& tensor) {
  std::vector<uint16_t> bits(static_cast<size_t>(tensor.numel()));
  CopyBytesToHost(tensor, std::as_writable_bytes(std::span(bits)));
  return bits;
}

}  // namespace

std::vector<Bucket> PlanBuckets(const std::vector<ParameterUnit>& units, int64_t min_numel,
                                const ShardCounts& shards) {
  std::vector<Bucket> buckets;  // the last units first
  bool used_after = false;      // whether others use the trained unit that follows
  for (size_t i = units.size(); i-- > 0;) {
    if (!units[i].trainable) continue;
    const FlatRange& range = units[i].range;
    const bool alone = units[i].users > 0 || used_after;
    if (buckets.empty() || alone || buckets.back().range.numel() >= min_numel) {
      buckets.push_back(
          {.end_unit = i + 1, .range = {range.end, range.end}, .grid = units[i].grid});
    }
    buckets.back().first_unit = i;
    buckets.back().range.begin = range.begin;
    used_after = units[i].users > 0;
  }
  std::reverse(buckets.begin(), buckets.end());
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].trainable) continue;
    buckets.push_back(
        {.first_unit = i, .end_unit = i + 1, .range = units[i].range, .grid = units[i].grid});
  }
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
  const TrainingTypes types = TypesOf(parallel.layout.numerics);
  const int64_t min_numel = gradients_sharded() ? 0 : kBucketBytes / SizeOf(types.gradients);
  buckets_ = PlanBuckets(store.units(), min_numel, shards);
  bucket_of_.resize(store.units().size());
  int64_t weights = 0;  // of the shard
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const bool trainable = store.units()[bucket.first_unit].trainable;
    for (size_t unit = bucket.first_unit; unit < bucket.end_unit; ++unit) {
      if (store.units()[unit].trainable == trainable) bucket_of_[unit] = i;
    }
    weights += PartOf(bucket).numel;
    if (!trainable) continue;
    numel_ = weights;
    trained_buckets_ = i + 1;
  }
  weights_ = Zeros(device, weights_sharded() ? weights : store.numel(), types.weights,
                   MemoryTag::kWeights);
  gradients_ = Zeros(device, gradients_sharded() ? numel() : store.trained_numel(), types.gradients,
                     MemoryTag::kGradients);
  if (types.has_master) masters_ = Zeros(device, numel(), types.master, MemoryTag::kOptimizer);
}

void ParameterShards::UseWeights(size_t unit) {
  const ParameterUnit& used = store_.units()[unit];
  for (const size_t other : used.also_uses) UseWeights(other);
  const std::span<Parameter* const> parameters = store_.ParametersOf(used);
  if (parameters.empty() || parameters.front()->weight.defined()) return;
  store_.BindWeights(unit, weights_.Slice(used.range.begin, {used.range.numel()}));
}

void ParameterShards::UseAllWeights() {
  for (size_t unit = 0; unit < store_.units().size(); ++unit) UseWeights(unit);
}

void ParameterShards::UseGradients(size_t unit) {
  const ParameterUnit& used = store_.units()[unit];
  for (const size_t other : used.also_uses) UseGradients(other);
  const std::span<Parameter* const> parameters = store_.ParametersOf(used);
  if (!used.trainable || parameters.empty() || parameters.front()->gradient.defined()) return;
  store_.BindGradients(unit, gradients_.Slice(used.range.begin, {used.range.numel()}));
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

Tensor ParameterShards::Masters(const OwnedPart& part) const {
  const bool frozen = part.begin >= store_.trained_numel();
  if (frozen || !masters_.defined()) return {};
  return masters_.Slice(part.shard_begin, {part.numel});
}

OwnedPart ParameterShards::Owned(int64_t begin, size_t count) const {
  const int64_t end = begin + static_cast<int64_t>(count);
  const OwnedPart part = Within({begin, end});
  TRIMTAB_ASSERT(part.begin == begin && part.begin + part.numel == end,
                 "elements {} to {} are updated elsewhere", begin, end);
  return part;
}

void ParameterShards::WriteWeights(int64_t begin, std::span<const float> values) {
  const int64_t end = begin + static_cast<int64_t>(values.size());
  const bool frozen = begin >= store_.trained_numel();
  const bool remainder = !frozen && masters_.defined() && masters_.dtype() == DType::kU16;
  const auto write = [remainder](Tensor weights, std::span<const float> kept) {
    if (remainder) {
      WriteBits(weights, kept, MasterWeightBits);
    } else {
      CopyFromHost(weights, kept);
    }
  };
  if (!weights_sharded()) write(weights_.Slice(begin, {end - begin}), values);
  const OwnedPart part = Within({begin, end});
  if (part.numel == 0) return;
  const std::span<const float> own =
      values.subspan(static_cast<size_t>(part.begin - begin), static_cast<size_t>(part.numel));
  if (weights_sharded()) write(Weights(part), own);
  Tensor masters = Masters(part);
  if (remainder) {
    WriteBits(masters, own, MasterRemainder);
  } else if (masters.defined()) {
    CopyFromHost(masters, own);
  }
}

void ParameterShards::ReadWeights(int64_t begin, std::span<float> values) const {
  const OwnedPart part = Owned(begin, values.size());
  const Tensor masters = Masters(part);
  if (!masters.defined()) return CopyToHost(Weights(part), values);
  if (masters.dtype() == DType::kF32) return CopyToHost(masters, values);
  const std::vector<uint16_t> weights = ReadBits(Weights(part));
  const std::vector<uint16_t> rest = ReadBits(masters);
  std::transform(weights.begin(), weights.end(), rest.begin(), values.begin(), JoinMaster);
}

}  // namespace trimtab

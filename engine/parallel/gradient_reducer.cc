#include "engine/parallel/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

GradientReducer::GradientReducer(const ParallelContext& parallel, ParameterShards& shards,
                                 Parameter* shared)
    : parallel_(parallel),
      shards_(shards),
      shared_(shared),
      units_(shards.store().units().size()),
      buckets_(shards.trained_buckets().size()),
      bucket_units_(buckets_.size()),
      overlap_(parallel.layout.overlap_grad_reduce) {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (IsTrained(unit)) ++bucket_units_[shards.BucketOf(unit)];
  }
}

bool GradientReducer::IsTrained(size_t unit) const {
  return shards_.store().units()[unit].trainable;
}

void GradientReducer::StartBackward(bool first, bool last) {
  first_ = first;
  last_ = last;
}

void GradientReducer::Begin(size_t unit, GradientPart part) {
  if (!shards_.gradients_sharded()) return shards_.UseGradients(unit);
  std::vector<size_t> used = shards_.store().units()[unit].also_uses;
  used.insert(used.begin(), unit);
  for (const size_t each : used) {
    if (part == GradientPart::kVectors) {
      AllocateVectors(each);
    } else {
      AllocateUnit(each);
      if (part == GradientPart::kMatrices) TakeVectors(each);
    }
  }
}

void GradientReducer::AllocateVectors(size_t unit) {
  const FlatRange& range = shards_.store().units()[unit].vectors;
  if (range.numel() == 0 || !IsTrained(unit)) return;
  std::vector<Tensor>& vectors = units_[unit].vectors;
  vectors.push_back(NewGradients(unit, range));
  shards_.store().BindVectorGradients(unit, vectors.back());
}

void GradientReducer::TakeVectors(size_t unit) {
  const ParameterUnit& layout = shards_.store().units()[unit];
  std::vector<Tensor>& vectors = units_[unit].vectors;
  if (vectors.empty()) return;
  Tensor target = units_[unit].gradients.Slice(layout.vectors.begin - layout.range.begin,
                                               {layout.vectors.numel()});
  Copy(vectors.front(), target);
  vectors.erase(vectors.begin());
}

Tensor GradientReducer::NewGradients(size_t unit, const FlatRange& range) const {
  Tensor gradients = Tensor::Empty(shards_.device(), {range.numel()}, shards_.gradients().dtype(),
                                   MemoryTag::kCommunication);
  // Gaps are summed and squared with the rest.
  for (const FlatRange& gap : shards_.store().units()[unit].gaps) {
    const int64_t begin = std::max(gap.begin, range.begin);
    const int64_t end = std::min(gap.end, range.end);
    if (begin >= end) continue;
    Tensor zeros = gradients.Slice(begin - range.begin, {end - begin});
    Fill(zeros, 0.0f);
  }
  return gradients;
}

void GradientReducer::AllocateUnit(size_t unit) {
  Tensor& gradients = units_[unit].gradients;
  const FlatRange& range = shards_.store().units()[unit].range;
  if (gradients.defined() || range.numel() == 0 || !IsTrained(unit)) return;
  // What no other rank holds needs no sum, and is made where it is kept.
  const Bucket& bucket = shards_.buckets()[shards_.BucketOf(unit)];
  const bool in_place = first_ && shards_.shard_group(bucket.grid).size() == 1;
  gradients = in_place ? shards_.Gradients(shards_.PartOf(bucket)) : NewGradients(unit, range);
  shards_.store().BindGradients(unit, gradients);
}

void GradientReducer::End(size_t unit, GradientPart part) {
  if (part == GradientPart::kVectors) {
    if (!shards_.gradients_sharded()) return;
    shards_.store().BindVectorGradients(unit, {});
    for (const size_t other : shards_.store().units()[unit].also_uses) {
      shards_.store().BindVectorGradients(other, {});
    }
    return;
  }
  if (!(last_ && overlap_) && !shards_.gradients_sharded()) return;
  const std::vector<ParameterUnit>& units = shards_.store().units();
  EndUse(unit, 1);
  for (const size_t other : units[unit].also_uses) EndUse(other, units[other].users);
}

void GradientReducer::EndUse(size_t unit, int uses) {
  if (!IsTrained(unit)) return;
  Unit& state = units_[unit];
  if (++state.ended < uses) return;
  state.ended = 0;
  const size_t bucket = shards_.BucketOf(unit);
  BucketState& sent = buckets_[bucket];
  if (++sent.completed < bucket_units_[bucket]) return;
  sent.completed = 0;
  Send(bucket);
}

void GradientReducer::SumReplicated(size_t unit, const Tensor& bucket, const FlatRange& range) {
  const ParameterUnit& layout = shards_.store().units()[unit];
  const FlatRange& replicated = layout.replicated;
  // An expert's rows are the same on every rank that shares it.
  if (replicated.numel() == 0 || layout.grid == ParallelGrid::kExperts) return;
  Tensor part = bucket.Slice(replicated.begin - range.begin, {replicated.numel()});
  parallel_.tp->AllReduce(part);
}

void GradientReducer::SumCopied(size_t unit, const Tensor& bucket, const FlatRange& range) {
  for (const Parameter* parameter : shards_.store().ParametersOf(shards_.store().units()[unit])) {
    const int64_t copies = parameter->spec.copied.copies;
    if (copies == 1) continue;
    Communicator& holders = copies == parallel_.layout.tp ? *parallel_.tp : *parallel_.kv;
    TRIMTAB_ASSERT(holders.size() == copies, "{} is held by {} ranks, of which {} are in a group",
                   parameter->spec.name, copies, holders.size());
    const FlatRange copied = parameter->copied();
    Tensor own = bucket.Slice(copied.begin - range.begin, {copied.numel()});
    holders.AllReduce(own);
  }
}

void GradientReducer::Send(size_t bucket) {
  buckets_[bucket].sent = true;
  const Bucket& sent = shards_.buckets()[bucket];
  if (sent.range.numel() == 0) return;
  // One at a time, where each has memory of its own; and each on its way to the other replicas
  // while the next one is scattered.
  if (shards_.gradients_sharded() || shards_.replica_group(sent.grid).size() > 1) Collect();
  Tensor gradients = shards_.gradients_sharded()
                         ? std::exchange(units_[sent.first_unit].gradients, {})
                         : shards_.gradients().Slice(sent.range.begin, {sent.range.numel()});
  for (size_t unit = sent.first_unit; unit < sent.end_unit && parallel_.layout.tp > 1; ++unit) {
    if (!IsTrained(unit)) continue;
    if (parallel_.layout.sequence_parallel) SumReplicated(unit, gradients, sent.range);
    SumCopied(unit, gradients, sent.range);
  }
  if (!shards_.updates_sharded()) return SumOverReplicas(bucket);
  const OwnedPart part = shards_.PartOf(sent);
  Tensor own = gradients.Slice(part.begin - sent.range.begin, {part.numel});
  if (shards_.gradients_sharded() && first_) own = shards_.Gradients(part);
  CommHandle handle = shards_.shard_group(sent.grid).ReduceScatterAsync(gradients, own);
  scattered_.push_back({bucket, std::move(gradients), std::move(handle)});
  if (!overlap_) Collect();
}

void GradientReducer::Collect() {
  for (Scattered& scattered : scattered_) {
    scattered.handle.Wait();
    const Bucket& bucket = shards_.buckets()[scattered.bucket];
    if (!shards_.gradients_sharded()) {
      SumOverReplicas(scattered.bucket);
      continue;
    }
    if (!first_) {
      const OwnedPart part = shards_.PartOf(bucket);
      Tensor sum = shards_.Gradients(part);
      Add(scattered.gradients.Slice(part.begin - bucket.range.begin, {part.numel}), sum);
    }
    shards_.store().BindGradients(bucket.first_unit, {});
    if (last_ && overlap_) SumOverReplicas(scattered.bucket);
  }
  scattered_.clear();
}

void GradientReducer::SumOverReplicas(size_t bucket) {
  buckets_[bucket].summed = true;
  const Bucket& summed = shards_.buckets()[bucket];
  Tensor own = shards_.Gradients(shards_.PartOf(summed));
  if (own.numel() > 0) sums_.push_back(shards_.replica_group(summed.grid).AllReduceAsync(own));
}

void GradientReducer::FinishBackward() {
  if (shards_.gradients_sharded()) Collect();
}

void GradientReducer::FinishStep() {
  for (size_t bucket = buckets_.size(); bucket-- > 0;) {
    if (!buckets_[bucket].sent && !shards_.gradients_sharded()) Send(bucket);
  }
  Collect();
  for (size_t bucket = buckets_.size(); bucket-- > 0;) {
    if (!buckets_[bucket].summed && shards_.gradients_sharded()) SumOverReplicas(bucket);
    buckets_[bucket] = {};
  }
  for (CommHandle& sum : sums_) sum.Wait();
  sums_.clear();
  if (shared_ == nullptr) return;
  const OwnedPart part = shards_.Within({shared_->offset, shared_->offset + shared_->numel()});
  if (part.numel == 0) return;
  Tensor gradients = shards_.Gradients(part);
  parallel_.embedding->AllReduce(gradients);
}

}  // namespace trimtab

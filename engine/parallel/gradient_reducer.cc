#include "engine/parallel/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "engine/ops/elementwise.h"

namespace trimtab {

GradientReducer::GradientReducer(const ParallelContext& parallel, ParameterShards& shards,
                                 Parameter* shared)
    : parallel_(parallel),
      shards_(shards),
      shared_(shared),
      units_(shards.store().units().size()),
      buckets_(shards.buckets().size()),
      overlap_(parallel.layout.overlap_grad_reduce) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = shards.buckets()[i];
    for (size_t unit = bucket.first_unit; unit < bucket.end_unit; ++unit) units_[unit].bucket = i;
  }
}

void GradientReducer::StartBackward(bool first, bool last) {
  first_ = first;
  last_ = last;
}

void GradientReducer::Begin(size_t unit, GradientPart part) {
  if (!shards_.gradients_sharded()) return shards_.UseGradients(unit);
  const ParameterUnit& layout = shards_.store().units()[unit];
  std::vector<Tensor>& vectors = units_[unit].vectors;
  if (part == GradientPart::kVectors) {
    vectors.push_back(NewGradients(unit, layout.vectors));
    return shards_.store().BindVectorGradients(unit, vectors.back());
  }
  AllocateUnit(unit);
  for (const size_t other : layout.also_uses) AllocateUnit(other);
  if (part == GradientPart::kAll) return;
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
  if (gradients.defined() || range.numel() == 0) return;
  gradients = NewGradients(unit, range);
  shards_.store().BindGradients(unit, gradients);
}

void GradientReducer::End(size_t unit, GradientPart part) {
  if (part == GradientPart::kVectors) {
    if (shards_.gradients_sharded()) shards_.store().BindVectorGradients(unit, {});
    return;
  }
  if (!(last_ && overlap_) && !shards_.gradients_sharded()) return;
  const std::vector<ParameterUnit>& units = shards_.store().units();
  EndUse(unit, 1);
  for (const size_t other : units[unit].also_uses) EndUse(other, units[other].users);
}

void GradientReducer::EndUse(size_t unit, int uses) {
  Unit& state = units_[unit];
  if (++state.ended < uses) return;
  state.ended = 0;
  const Bucket& bucket = shards_.buckets()[state.bucket];
  BucketState& sent = buckets_[state.bucket];
  if (++sent.completed < bucket.end_unit - bucket.first_unit) return;
  sent.completed = 0;
  Send(state.bucket);
}

void GradientReducer::SumReplicated(size_t unit, const Tensor& bucket, const FlatRange& range) {
  const FlatRange& replicated = shards_.store().units()[unit].replicated;
  if (replicated.numel() == 0) return;
  Tensor part = bucket.Slice(replicated.begin - range.begin, {replicated.numel()});
  parallel_.tp->AllReduce(part);
}

void GradientReducer::Send(size_t bucket) {
  buckets_[bucket].sent = true;
  const Bucket& sent = shards_.buckets()[bucket];
  if (sent.range.numel() == 0) return;
  // One at a time, where each has memory of its own; and each on its way to the other replicas
  // while the next one is scattered.
  if (shards_.gradients_sharded() || shards_.replica_group().size() > 1) Collect();
  Tensor gradients = shards_.gradients_sharded()
                         ? std::exchange(units_[sent.first_unit].gradients, {})
                         : shards_.gradients().Slice(sent.range.begin, {sent.range.numel()});
  if (parallel_.layout.tp > 1 && parallel_.layout.sequence_parallel) {
    for (size_t unit = sent.first_unit; unit < sent.end_unit; ++unit) {
      SumReplicated(unit, gradients, sent.range);
    }
  }
  if (!shards_.updates_sharded()) return SumOverReplicas(bucket);
  const OwnedPart part = shards_.PartOf(sent);
  Tensor own = gradients.Slice(part.begin - sent.range.begin, {part.numel});
  if (shards_.gradients_sharded() && first_) own = shards_.Gradients(part);
  CommHandle handle = shards_.shard_group().ReduceScatterAsync(gradients, own);
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
  Tensor own = shards_.Gradients(shards_.PartOf(shards_.buckets()[bucket]));
  if (own.numel() > 0) sums_.push_back(shards_.replica_group().AllReduceAsync(own));
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

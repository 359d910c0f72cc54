#include "engine/parallel/gradient_reducer.h"

#include <utility>

#include "engine/ops/elementwise.h"

namespace trimtab {

GradientReducer::GradientReducer(const ParallelContext& parallel, ParameterShards& shards)
    : parallel_(parallel),
      shards_(shards),
      completed_(shards.buckets().size()),
      units_(shards.store().units().size()) {
  for (size_t i = 0; i < shards.buckets().size(); ++i) {
    bucket_of_.resize(shards.buckets()[i].end_unit, i);
  }
}

void GradientReducer::StartBackward(bool first, bool last) {
  first_ = first;
  last_ = last;
}

void GradientReducer::Begin(size_t unit) {
  if (!shards_.gradients_sharded()) return;
  AllocateUnit(unit);
  for (const size_t other : shards_.store().units()[unit].also_uses) AllocateUnit(other);
}

void GradientReducer::AllocateUnit(size_t unit) {
  Tensor& gradients = units_[unit];
  if (gradients.defined()) return;
  const ParameterUnit& layout = shards_.store().units()[unit];
  gradients = Tensor::Empty(shards_.device(), {layout.range.numel()}, shards_.gradients().dtype(),
                            MemoryTag::kCommunication);
  // They are summed and squared with the rest.
  for (const FlatRange& gap : layout.gaps) {
    Tensor zeros = gradients.Slice(gap.begin - layout.range.begin, {gap.numel()});
    Fill(zeros, 0.0f);
  }
  shards_.store().BindGradients(unit, gradients);
}

void GradientReducer::Complete(size_t unit) {
  if (!last_ && !shards_.gradients_sharded()) return;
  const size_t bucket = bucket_of_[unit];
  const Bucket& all = shards_.buckets()[bucket];
  if (++completed_[bucket] < all.end_unit - all.first_unit) return;
  completed_[bucket] = 0;
  Send(bucket);
}

void GradientReducer::SumReplicated(size_t unit, const Tensor& bucket, const FlatRange& range) {
  const FlatRange& replicated = shards_.store().units()[unit].replicated;
  if (replicated.numel() == 0) return;
  Tensor part = bucket.Slice(replicated.begin - range.begin, {replicated.numel()});
  parallel_.tp->AllReduce(part);
}

void GradientReducer::Send(size_t bucket) {
  // One at a time, where each has memory of its own.
  if (shards_.gradients_sharded()) Wait();
  const Bucket& sent = shards_.buckets()[bucket];
  Reduction reduction = {.bucket = bucket};
  reduction.gradients = shards_.gradients_sharded()
                            ? std::exchange(units_[sent.first_unit], {})
                            : shards_.gradients().Slice(sent.range.begin, {sent.range.numel()});
  if (parallel_.layout.tp > 1 && parallel_.layout.sequence_parallel) {
    for (size_t unit = sent.first_unit; unit < sent.end_unit; ++unit) {
      SumReplicated(unit, reduction.gradients, sent.range);
    }
  }
  if (parallel_.dp->size() == 1) return;
  if (!shards_.updates_sharded()) {
    reduction.handle = parallel_.dp->AllReduceAsync(reduction.gradients);
  } else {
    const OwnedPart part = shards_.PartOf(sent);
    Tensor own = reduction.gradients.Slice(part.begin - sent.range.begin, {part.numel});
    if (shards_.gradients_sharded() && first_) own = shards_.Gradients(part);
    reduction.handle = parallel_.dp->ReduceScatterAsync(reduction.gradients, own);
  }
  reductions_.push_back(std::move(reduction));
}

void GradientReducer::Wait() {
  for (Reduction& reduction : reductions_) {
    reduction.handle.Wait();
    if (!shards_.gradients_sharded()) continue;
    const Bucket& bucket = shards_.buckets()[reduction.bucket];
    if (!first_) {
      const OwnedPart part = shards_.PartOf(bucket);
      Tensor sum = shards_.Gradients(part);
      Add(reduction.gradients.Slice(part.begin - bucket.range.begin, {part.numel}), sum);
    }
    shards_.store().BindGradients(bucket.first_unit, {});
  }
  reductions_.clear();
}

void GradientReducer::FinishBackward() { Wait(); }

void GradientReducer::ReduceAll() {
  if (shards_.gradients_sharded()) return;
  for (size_t bucket = shards_.buckets().size(); bucket-- > 0;) Send(bucket);
  Wait();
}

}  // namespace trimtab

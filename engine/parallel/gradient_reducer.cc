#include "engine/parallel/gradient_reducer.h"

namespace trimtab {

namespace {

/// The tensor-parallel part of the buffer without the shared table.
Bucket OwnRange(const ParameterStore& store, const Parameter* shared) {
  const int64_t end = store.own_tensor_parallel_numel();
  if (shared == nullptr || shared->spec.duplicate) return {0, end};
  TRIMTAB_ASSERT(shared->offset == 0, "{} is at {}", shared->spec.name, shared->offset);
  return {RoundUp(shared->numel(), kParameterAlignment), end};
}

}  // namespace

std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& cut_points, const Bucket& range,
                                int64_t min_numel) {
  std::vector<Bucket> buckets;
  int64_t end = range.end;
  for (size_t i = cut_points.size(); i-- > 0;) {
    const int64_t begin = cut_points[i];
    if (begin > range.begin && end - begin >= min_numel) {
      buckets.push_back({begin, end});
      end = begin;
    }
  }
  if (end > range.begin) buckets.push_back({range.begin, end});
  return buckets;
}

GradientReducer::GradientReducer(const ParallelContext& parallel, ParameterStore& store,
                                 const std::vector<int64_t>& cut_points, Parameter* shared)
    : parallel_(parallel),
      store_(store),
      shared_(shared),
      buckets_(PlanBuckets(cut_points, OwnRange(store, shared),
                           kBucketBytes / SizeOf(store.gradients().dtype()))) {}

void GradientReducer::OnComplete(int64_t offset) {
  if (parallel_.dp->size() == 1 || sharded()) return;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].begin >= offset) {
    const Bucket& bucket = buckets_[next_bucket_++];
    Tensor part = store_.gradients().Slice(bucket.begin, {bucket.end - bucket.begin});
    reductions_.push_back(parallel_.dp->AllReduceAsync(part));
  }
}

void GradientReducer::Finish() {
  if (shared_ != nullptr) parallel_.embedding->AllReduce(shared_->gradient);
  const int64_t replicated_begin = store_.tensor_parallel_numel();
  const int64_t replicated = store_.numel() - replicated_begin;
  Tensor replicated_part = store_.gradients().Slice(replicated_begin, {replicated});
  // A stage of nothing but the embedding may have none.
  if (parallel_.layout.tp > 1 && parallel_.layout.sequence_parallel && replicated > 0) {
    parallel_.tp->AllReduce(replicated_part);
  }
  if (parallel_.dp->size() == 1) return;
  if (sharded()) {
    Tensor& gradients = store_.gradients();
    const int64_t shard = gradients.numel() / parallel_.dp->size();
    Tensor own = gradients.Slice(parallel_.dp->rank() * shard, {shard});
    parallel_.dp->ReduceScatter(gradients, own);
    return;
  }
  OnComplete(0);
  if (shared_ != nullptr) reductions_.push_back(parallel_.dp->AllReduceAsync(shared_->gradient));
  if (replicated > 0) reductions_.push_back(parallel_.dp->AllReduceAsync(replicated_part));
  for (CommHandle& reduction : reductions_) reduction.Wait();
  reductions_.clear();
  next_bucket_ = 0;
}

}  // namespace trimtab

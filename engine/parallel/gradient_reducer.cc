#include "engine/parallel/gradient_reducer.h"

namespace trimtab {

std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& cut_points, int64_t numel,
                                int64_t min_numel) {
  std::vector<Bucket> buckets;
  int64_t end = numel;
  for (size_t i = cut_points.size(); i-- > 0;) {
    const int64_t begin = cut_points[i];
    if (begin > 0 && end - begin >= min_numel) {
      buckets.push_back({begin, end});
      end = begin;
    }
  }
  if (end > 0) buckets.push_back({0, end});
  return buckets;
}

GradientReducer::GradientReducer(const ParallelContext& parallel, ParameterStore& store,
                                 std::vector<int64_t> cut_points)
    : parallel_(parallel),
      store_(store),
      buckets_(PlanBuckets(cut_points, store.tensor_parallel_numel(),
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
  const int64_t replicated_begin = store_.tensor_parallel_numel();
  const int64_t replicated = store_.numel() - replicated_begin;
  Tensor replicated_part = store_.gradients().Slice(replicated_begin, {replicated});
  if (parallel_.layout.tp > 1 && parallel_.layout.sequence_parallel) {
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
  reductions_.push_back(parallel_.dp->AllReduceAsync(replicated_part));
  for (CommHandle& reduction : reductions_) reduction.Wait();
  reductions_.clear();
  next_bucket_ = 0;
}

}  // namespace trimtab

// Data-parallel gradient reduction over the flat gradient buffer.
//
// zero 0: buckets of at least `kBucketBytes`, cut from the end of the tensor-parallel part, are
// all-reduced as soon as the backward pass has completed them, beside the rest of that pass where
// the communicator has a stream of its own; the replicated part goes last.
// zero 1: one reduce-scatter of the whole buffer, each rank receiving the shard it updates.
// A table that first and last pipeline stage share is summed over the two before either.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/units.h"
#include "engine/comm/parallel_context.h"
#include "engine/layers/parameter.h"

namespace trimtab {

/// Size from which on a bucket is sent: large enough that latency no longer matters.
inline constexpr int64_t kBucketBytes = 25 * kMiB;

/// Elements [begin, end) of the flat buffer.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Bucket&) const = default;
};
/// The buckets over `range`, the last elements first. Cuts are only made at `cut_points` (ascending
/// offsets), when at least `min_numel` elements have gathered.
std::vector<Bucket> PlanBuckets(const std::vector<int64_t>& cut_points, const Bucket& range,
                                int64_t min_numel);

class GradientReducer {
 public:
  /// `shared`: the table that another pipeline stage holds too; nullptr = none. It is the first or
  /// the last of the tensor-parallel part.
  GradientReducer(const ParallelContext& parallel, ParameterStore& store,
                  const std::vector<int64_t>& cut_points, Parameter* shared);

  /// Call during the backward pass of the last micro batch: gradients of the tensor-parallel part
  /// from `offset` on are final on this rank.
  void OnComplete(int64_t offset);

  /// Call after that backward pass: reduces what is left, first over the embedding group (the
  /// shared table) and tp (replicated parameters under sequence parallelism hold partial gradients
  /// there), then over dp.
  void Finish();

 private:
  bool sharded() const { return parallel_.layout.zero >= 1 && parallel_.dp->size() > 1; }

  const ParallelContext& parallel_;
  ParameterStore& store_;
  Parameter* shared_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  std::vector<CommHandle> reductions_;  // under way
};

}  // namespace trimtab

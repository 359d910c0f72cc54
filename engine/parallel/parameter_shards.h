// ParameterShards: which weights and gradients a rank keeps from step to step, and which elements
// it updates, by sharding stage (ZeRO, Rajbhandari et al., arXiv:1910.02054):
//
//   stage  weights  gradients  updates
//   0      all      all        all
//   1      all      all        its shard
//   2      all      its shard  its shard
//   3      a shard  its shard  its shard
//
// A replica is sharded over all data-parallel ranks, or (hybrid sharding: Zhang et al., MiCS,
// arXiv:2205.00119; Zhao et al., arXiv:2304.11277) over layout.shard neighbours of them, and there
// are several. What is sent at once is a bucket: a run of units, cut into as many equal parts as a
// replica has ranks. A rank's shard is its part of every bucket, one after the other. Experts are
// held by other ranks than the rest: their units are buckets of their own, sharded over the ranks
// of the experts' grid that hold the same ones. Beside 16-bit weights, a rank keeps what completes
// them to fp32 (masters) of what it updates. Frozen units are buckets of their own behind the
// others, with weights alone: sharded in stage 3, whole otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "engine/comm/parallel_context.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// Size from which on a bucket of stages 0 and 1 is sent: large enough that latency no longer
/// matters. In stages 2 and 3 every unit is a bucket, so that little is in memory at once.
inline constexpr int64_t kBucketBytes = 25 * kMiB;

/// Units [first_unit, end_unit): of trained ones those that are trained, else one that is frozen.
struct Bucket {
  size_t first_unit = 0;
  size_t end_unit = 0;
  FlatRange range;
  int64_t shard_begin = 0;  // of the rank's part, in its shard
  ParallelGrid grid = ParallelGrid::kDense;

  bool operator==(const Bucket&) const = default;
};

/// Buckets of at least `min_numel` trained elements, in flat order, collected from the last unit,
/// which the backward pass completes first. What another pipeline stage may hold too, a unit that
/// others use, is a bucket of its own, so that it is cut alike there; as are the experts of a
/// layer.
std::vector<Bucket> PlanBuckets(const std::vector<ParameterUnit>& units, int64_t min_numel,
                                const ShardCounts& shards);

/// Elements of the flat order that this rank updates.
struct OwnedPart {
  int64_t begin = 0;        // in the flat order
  int64_t shard_begin = 0;  // in the shard
  int64_t numel = 0;
};

class ParameterShards {
 public:
  /// Places the parameters of `store` and allocates what this rank keeps, zeroed. All three must
  /// outlive this.
  ParameterShards(const ParallelContext& parallel, ParameterStore& store, Device& device);
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  ParameterStore& store() const { return store_; }
  Device& device() const { return weights_.device(); }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Those of trained units, which come first.
  std::span<const Bucket> trained_buckets() const {
    return std::span(buckets_).first(trained_buckets_);
  }
  /// Index of the unit's bucket.
  size_t BucketOf(size_t unit) const { return bucket_of_[unit]; }

  /// The ranks that share this replica of what is laid out over `grid`, and those that have the
  /// same shard in other replicas.
  Communicator& shard_group(ParallelGrid grid) const { return *GroupsOf(grid).shard; }
  Communicator& replica_group(ParallelGrid grid) const { return *GroupsOf(grid).replica; }

  /// Whether the rank updates a part only; keeps gradients, weights of that part only.
  bool updates_sharded() const { return stage_ >= 1; }
  bool gradients_sharded() const { return stage_ >= 2; }
  bool weights_sharded() const { return stage_ >= 3; }

  /// Elements this rank updates: the size of its shard, without what is frozen.
  int64_t numel() const { return numel_; }
  /// This rank's part of a bucket.
  OwnedPart PartOf(const Bucket& bucket) const;
  /// Those of its elements that lie in `range`, which lies in one unit.
  OwnedPart Within(const FlatRange& range) const;

  /// Binds the unit, and those that it also uses, to weights (gradients) that are kept whole,
  /// unless it was done before. Most dry runs never use a parameter.
  void UseWeights(size_t unit);
  void UseAllWeights();
  void UseGradients(size_t unit);

  /// Views of what this rank updates.
  Tensor Weights(const OwnedPart& part) const;
  Tensor Gradients(const OwnedPart& part) const;
  /// All that is kept: of the whole flat order, or of the shard.
  const Tensor& weights() const { return weights_; }
  const Tensor& gradients() const { return gradients_; }
  /// Masters of what this rank updates; undefined where weights are fp32 or frozen.
  Tensor Masters(const OwnedPart& part) const;

  // fp32 values of weights, with their masters: of elements [begin, begin + values.size()) of the
  // flat order, all of one unit.

  /// Sets weights and masters, both as far as this rank keeps them.
  void WriteWeights(int64_t begin, std::span<const float> values);
  /// This rank must update the elements, or, frozen, have them in its shard.
  void ReadWeights(int64_t begin, std::span<float> values) const;
  /// The elements as a part of the shard, of which they must be.
  OwnedPart Owned(int64_t begin, size_t count) const;

 private:
  struct Groups {
    Communicator* shard = nullptr;
    Communicator* replica = nullptr;
  };
  const Groups& GroupsOf(ParallelGrid grid) const {
    return grid == ParallelGrid::kDense ? dense_ : experts_;
  }

  ParameterStore& store_;
  int64_t stage_ = 0;
  Groups dense_;
  Groups experts_;
  std::vector<Bucket> buckets_;
  size_t trained_buckets_ = 0;
  std::vector<size_t> bucket_of_;  // by unit
  int64_t numel_ = 0;
  Tensor weights_;
  Tensor gradients_;
  Tensor masters_;  // of the shard; undefined with fp32 weights
};

}  // namespace trimtab

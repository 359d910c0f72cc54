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
// of the experts' grid that hold the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/units.h"
#include "engine/comm/parallel_context.h"
#include "engine/layers/parameter.h"

namespace trimtab {

/// Size from which on a bucket of stages 0 and 1 is sent: large enough that latency no longer
/// matters. In stages 2 and 3 every unit is a bucket, so that little is in memory at once.
inline constexpr int64_t kBucketBytes = 25 * kMiB;

/// Units [first_unit, end_unit).
struct Bucket {
  size_t first_unit = 0;
  size_t end_unit = 0;
  FlatRange range;
  int64_t shard_begin = 0;  // of the rank's part, in its shard
  Grid grid = Grid::kDense;

  bool operator==(const Bucket&) const = default;
};

/// Buckets of at least `min_numel` elements, in flat order, collected from the last unit, which the
/// backward pass completes first. What another pipeline stage may hold too, a unit that others use,
/// is a bucket of its own, so that it is cut alike there; as are the experts of a layer.
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
  /// Places the parameters of `store`, allocates what this rank keeps, zeroed, and binds it where
  /// it is whole. All three must outlive this.
  ParameterShards(const ParallelContext& parallel, ParameterStore& store, Device& device);
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  ParameterStore& store() const { return store_; }
  Device& device() const { return weights_.device(); }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  /// The ranks that share this replica of what is laid out over `grid`, and those that have the
  /// same shard in other replicas.
  Communicator& shard_group(Grid grid) const { return *GroupsOf(grid).shard; }
  Communicator& replica_group(Grid grid) const { return *GroupsOf(grid).replica; }

  /// Whether the rank updates a part only; keeps gradients, weights of that part only.
  bool updates_sharded() const { return stage_ >= 1; }
  bool gradients_sharded() const { return stage_ >= 2; }
  bool weights_sharded() const { return stage_ >= 3; }

  /// Elements this rank updates: the size of its shard.
  int64_t numel() const { return numel_; }
  /// This rank's part of a bucket.
  OwnedPart PartOf(const Bucket& bucket) const;
  /// Those of its elements that lie in `range`, which lies in one unit.
  OwnedPart Within(const FlatRange& range) const;

  /// Views of what this rank updates.
  Tensor Weights(const OwnedPart& part) const;
  Tensor Gradients(const OwnedPart& part) const;
  /// All that is kept: of the whole flat order, or of the shard.
  const Tensor& weights() const { return weights_; }
  const Tensor& gradients() const { return gradients_; }

 private:
  struct Groups {
    Communicator* shard = nullptr;
    Communicator* replica = nullptr;
  };
  const Groups& GroupsOf(Grid grid) const { return grid == Grid::kDense ? dense_ : experts_; }

  ParameterStore& store_;
  int64_t stage_ = 0;
  Groups dense_;
  Groups experts_;
  std::vector<Bucket> buckets_;
  int64_t numel_ = 0;
  Tensor weights_;
  Tensor gradients_;
};

}  // namespace trimtab

// GradientReducer: sums gradients over the data-parallel ranks, beside the backward pass.
//
// Stages 0 and 1 send a bucket once a step, when the last micro batch has completed it:
// all-reduced, or reduce-scattered in place. Stages 2 and 3 give a unit memory for its gradients
// when they are about to be written, and reduce-scatter them when a micro batch has completed them,
// into the shard (the first micro batch) or to be added to it; while one unit is on its way the
// next one is computed. With several sharded replicas, what has been scattered within one of them
// is then all-reduced across them, once a step. Without layout.overlap_grad_reduce stages 0 and 1
// send at the end of the step, and stages 2 and 3 wait for what they send. Where a backward pass is
// made in two parts, the gradients of vectors that the first has made wait, by micro batch, for
// those of matrices, and go with them. Replicated parameters, of which sequence parallelism leaves
// each tp rank a part of the gradient, are summed over tp before.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/parallel/parameter_shards.h"
#include "engine/parameters/unit_hooks.h"

namespace trimtab {

class GradientReducer {
 public:
  /// `shared`: the table that another pipeline stage holds too; nullptr = none. All must outlive
  /// this.
  GradientReducer(const ParallelContext& parallel, ParameterShards& shards, Parameter* shared);

  /// What is told from now on is of a micro batch: the first, the last of a step?
  void StartBackward(bool first, bool last);
  /// Whether its gradients must be added to those that it finds.
  bool accumulates() const { return !first_ && !shards_.gradients_sharded(); }

  /// Gradients of the unit, and of those it also uses, are about to be written.
  void Begin(size_t unit, GradientPart part);
  /// They are final for this micro batch, if no other unit uses them.
  void End(size_t unit, GradientPart part);
  /// The backward pass of a micro batch through a chunk of the model, or a part of it, is over:
  /// waits where gradients on their way have memory of their own.
  void FinishBackward();
  /// The last one is over: sends what was not sent, and waits for all. Sums the shared table over
  /// the two stages.
  void FinishStep();

 private:
  /// A bucket on its way to the shards.
  struct Scattered {
    size_t bucket = 0;
    Tensor gradients;
    CommHandle handle;
  };

  /// Whether the unit has gradients.
  bool IsTrained(size_t unit) const;
  /// Memory for vectors of the unit.
  void AllocateVectors(size_t unit);
  /// The vectors of a micro batch, made earlier, into the unit's gradients.
  void TakeVectors(size_t unit);
  /// Memory for the gradients of `range`, which lies in the unit; of it only the gaps are zero.
  Tensor NewGradients(size_t unit, const FlatRange& range) const;
  /// Gives the unit memory for gradients, unless it has some.
  void AllocateUnit(size_t unit);
  /// One more of the units whose gradients the unit holds is done.
  void EndUse(size_t unit, int uses);
  /// Sums what several tensor-parallel ranks hold copies of (ParameterSpec::copied) over these.
  void SumCopied(size_t unit, const Tensor& bucket, const FlatRange& range);
  void SumReplicated(size_t unit, const Tensor& bucket, const FlatRange& range);
  void Send(size_t bucket);
  /// Waits for what is on its way to the shards, and sends it on where that is its last addition.
  void Collect();
  /// This rank's part of the bucket, when nothing more will be added to it.
  void SumOverReplicas(size_t bucket);

  const ParallelContext& parallel_;
  ParameterShards& shards_;
  Parameter* shared_;
  struct Unit {
    int ended = 0;  // uses in this micro batch
    // With sharded gradients:
    Tensor gradients;             // being written
    std::vector<Tensor> vectors;  // of micro batches whose matrices' are yet to be made, in order
  };
  std::vector<Unit> units_;
  struct BucketState {
    size_t completed = 0;  // units
    // In this step:
    bool sent = false;
    bool summed = false;  // over replicas
  };
  std::vector<BucketState> buckets_;  // of trained units
  std::vector<size_t> bucket_units_;  // how many each has
  std::vector<Scattered> scattered_;
  std::vector<CommHandle> sums_;  // over replicas
  bool overlap_;
  bool first_ = true;
  bool last_ = true;
};

}  // namespace trimtab

// GradientReducer: sums gradients over the data-parallel ranks, beside the backward pass.
//
// Stages 0 and 1 send a bucket once a step, when the last micro batch has completed it: all-reduced,
// or reduce-scattered in place. Stages 2 and 3 give a unit memory for its gradients when its
// backward pass begins, and reduce-scatter them when it ends, into the shard (the first micro batch)
// or to be added to it; while one unit is on its way the next one is computed. Replicated
// parameters, of which sequence parallelism leaves each tp rank a part of the gradient, are summed
// over tp before.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/parallel/parameter_shards.h"

namespace trimtab {

class GradientReducer {
 public:
  /// Both must outlive this.
  GradientReducer(const ParallelContext& parallel, ParameterShards& shards);

  /// The backward pass of a micro batch begins: the first, the last of a step?
  void StartBackward(bool first, bool last);
  /// Whether that backward pass must add to the gradients that it finds.
  bool accumulates() const { return !first_ && !shards_.gradients_sharded(); }

  /// Gradients of the unit, and of those whose parameters it uses, are about to be written.
  void Begin(size_t unit);
  /// Those of its own parameters are final for this micro batch.
  void Complete(size_t unit);
  /// The backward pass is over: waits for what is under way.
  void FinishBackward();

  /// Sends what a step sends once, whatever its micro batches, and waits for it.
  void ReduceAll();

 private:
  /// A bucket that was sent.
  struct Reduction {
    size_t bucket = 0;
    Tensor gradients;
    CommHandle handle;
  };

  /// Gives the unit zeroed gaps and undefined gradients, unless it has gradients already.
  void AllocateUnit(size_t unit);
  void SumReplicated(size_t unit, const Tensor& bucket, const FlatRange& range);
  void Send(size_t bucket);
  void Wait();

  const ParallelContext& parallel_;
  ParameterShards& shards_;
  std::vector<size_t> bucket_of_;  // by unit
  std::vector<size_t> completed_;  // units, by bucket
  std::vector<Tensor> units_;      // with sharded gradients: those being written
  std::vector<Reduction> reductions_;
  bool first_ = true;
  bool last_ = true;
};

}  // namespace trimtab

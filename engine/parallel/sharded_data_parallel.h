// ShardedDataParallel: data parallelism of one rank in all its stages. What each stage keeps stands
// in parameter_shards.h; this class moves weights and gradients when the model says what it uses.
#pragma once

#include <optional>

#include "engine/parallel/gradient_reducer.h"
#include "engine/parallel/parameter_shards.h"
#include "engine/parallel/update_gatherer.h"
#include "engine/parallel/weight_gatherer.h"
#include "engine/parameters/unit_hooks.h"

namespace trimtab {

class ShardedDataParallel final : public UnitHooks {
 public:
  /// Places and allocates the parameters that `store` has declared, as ParameterShards says. `fp8`
  /// is nullptr unless the precision is fp8; `shared` is the table that another pipeline stage
  /// holds too, or nullptr. All must outlive this.
  ShardedDataParallel(const ParallelContext& parallel, ParameterStore& store, Device& device,
                      Fp8State* fp8, Parameter* shared = nullptr);

  ParameterShards& shards() { return shards_; }

  // Around backward passes; see GradientReducer.
  void StartBackward(bool first, bool last) { reducer_.StartBackward(first, last); }
  bool accumulates() const { return reducer_.accumulates(); }
  void FinishBackward() { reducer_.FinishBackward(); }
  void FinishStep();

  /// Call when the ranks have updated their shards: where weights are kept whole, gathers them, or
  /// begins to (layout.overlap_param_gather).
  void GatherUpdated();
  /// Call when all ranks have changed their weights alike, from outside.
  void WeightsChanged();
  /// Call before weights are read or written from outside.
  void AwaitWeights();

  void BeginForward(size_t unit, std::optional<size_t> next) override;
  void EndForward(size_t unit) override;
  void BeginBackward(size_t unit, std::optional<size_t> next) override;
  void EndBackward(size_t unit) override;
  void BeginGradients(size_t unit, GradientPart part) override { reducer_.Begin(unit, part); }
  void EndGradients(size_t unit, GradientPart part) override { reducer_.End(unit, part); }

 private:
  /// Makes the weights ready that the unit uses, and begins to gather those of `next`, so that they
  /// arrive while the unit computes.
  void Acquire(size_t unit, std::optional<size_t> next);
  void Release(size_t unit);

  /// How long gathered weights stay.
  enum class Keep { kForPass, kUntilBackward, kForStep };
  static Keep KeepOf(const ParallelConfig& layout);

  ParameterShards shards_;
  GradientReducer reducer_;
  WeightGatherer gatherer_;
  UpdateGatherer updates_;
  Keep keep_;
};

}  // namespace trimtab

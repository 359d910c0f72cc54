// Tensor-parallel linear layers (Megatron-LM, arXiv:1909.08053; sequence parallelism:
// Korthikanti et al., arXiv:2205.05198). y = x W^T + b with W [out, in].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/layers/layer_context.h"
#include "engine/layers/linear/linear_gemms.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// The all-gather that opens a sequence-parallel region's full view: x [rows, C] -> [N, C].
/// Without sequence parallelism it is x itself.
Tensor GatherRows(const LayerContext& context, const Tensor& x);

/// Whether the rows that sequence parallelism gathers arrive in chunks, and are multiplied so
/// (tp_overlap.h).
inline bool GathersInChunks(const LayerContext& context) {
  return context.sequence_parallel() && context.tp_chunks() > 1;
}

/// Sums a partial result [N, C] over the tensor-parallel group: an all-reduce in place, or with
/// sequence parallelism a reduce-scatter into a new tensor [rows, C] under `tag`.
Tensor ReduceRows(const LayerContext& context, Tensor partial, MemoryTag tag);

/// Splits its output features over tp. Input [rows, in] is gathered first under sequence
/// parallelism; only the shard is kept for the backward pass, which gathers again.
class ColumnParallelLinear {
 public:
  /// `output_blocks` are the row counts of fused projections (their sum is `out`), each sharded on
  /// its own; of those after the first, `copies` neighbouring ranks have the same. `bias` declares
  /// one.
  ColumnParallelLinear(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                       int64_t in, const RowBlocks& output_blocks, bool bias, double init_std,
                       int64_t copies = 1);
  /// The output projection over `weight`, a [out / tp, in] parameter declared elsewhere: no bias,
  /// never fp8.
  explicit ColumnParallelLinear(Parameter& weight) : products_(weight) {}

  /// y [N, out / tp] under `tag` from x [rows, in]. `gelu` [N, out / tp], if defined, becomes
  /// gelu(y); only where TakesGelu.
  Tensor Forward(const LayerContext& context, LinearOperand x, MemoryTag tag, LinearSaved& saved,
                 const Tensor& gelu = {}) const;
  /// Whether gelu may be made beside the product: not where that runs in chunks.
  bool TakesGelu(const LayerContext& context) const {
    return products_.TakesGelu() && !GathersInChunks(context);
  }
  /// dx [rows, in] from dy [N, out / tp]; adds to the gradients, or overwrites them when not
  /// `accumulate`; with context.deferred the weight's later. Whoever wrote dy to a GradientTarget
  /// has done the bias's.
  Tensor Backward(const LayerContext& context, const LinearSaved& saved, LinearOperand dy,
                  bool accumulate) const;

  /// Fills `saved` as Forward does, without the product.
  void Keep(const LayerContext& context, const LinearOperand& x, LinearSaved& saved) const {
    products_.Keep(context, x, saved);
  }

  /// Where a fused op may write x or dy itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return products_.InputTarget(context);
  }
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const {
    return products_.GradientTarget(context);
  }

  Parameter& weight() const { return products_.weight(); }
  /// nullptr without one.
  Parameter* bias() const { return bias_; }

 private:
  /// And that of `bias`, if it is not null.
  void WeightGradient(const LayerContext& context, const LinearGemms::Backward& backward,
                      const LinearSaved& saved, bool accumulate, Parameter* bias) const;
  /// Leaves WeightGradient to context.deferred.
  void Defer(const LayerContext& context, const LinearGemms::Backward& backward,
             const LinearSaved& saved) const;
  /// Backward without the bias, in chunks (tp_overlap.h).
  Tensor BackwardInChunks(const LayerContext& context, const LinearSaved& saved, const Tensor& dy,
                          bool accumulate) const;

  LinearGemms products_;
  Parameter* bias_ = nullptr;
};

/// Splits its input features over tp; the partial outputs are summed over the group, then the
/// bias (the same on every rank) and the residual are added: a partial output that held them would
/// be rounded more coarsely before it is summed.
class RowParallelLinear {
 public:
  RowParallelLinear(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                    int64_t in, int64_t out, bool bias, double init_std);

  /// y [rows, out] under `tag` from x [N, in / tp]; plus `residual` [rows, out], where that is
  /// defined. A rank that has all of the product adds both while it is written.
  Tensor Forward(const LayerContext& context, LinearOperand x, MemoryTag tag, LinearSaved& saved,
                 const Tensor& residual = {}) const;
  /// Fills `saved` as Forward does, without the product.
  void Keep(const LayerContext& context, const LinearOperand& x, LinearSaved& saved) const {
    products_.Keep(context, x, saved);
  }
  /// Where a fused op may write x itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return products_.InputTarget(context);
  }
  /// Where the op that adds to dy may write its copies too: not where sequence parallelism gathers
  /// it, nor in a run's first step.
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const;
  /// dx [N, in / tp] from dy [rows, out], a matrix with or without its copies, which may be changed
  /// afterwards. Where `gelu_of` is defined, the gradient of that, of which x was gelu; only where
  /// TakesGelu.
  Tensor Backward(const LayerContext& context, const LinearSaved& saved, LinearOperand dy,
                  bool accumulate, const Tensor& gelu_of = {}) const;
  /// As of ColumnParallelLinear.
  bool TakesGelu(const LayerContext& context) const {
    return products_.TakesGelu() && !GathersInChunks(context);
  }

 private:
  /// Now, and that of `bias` with it, if that is not null; or left to context.deferred.
  void WeightGradient(const LayerContext& context, const LinearGemms::Backward& backward,
                      const LinearSaved& saved, bool accumulate, Parameter* bias) const;

  LinearGemms products_;
  Parameter* bias_ = nullptr;
};

}  // namespace trimtab

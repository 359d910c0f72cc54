// Causal self-attention: fused projection, clamped if the model says so, norms of query and key
// heads if it has them, rotary positions, attention.
#pragma once

#include "engine/layers/core_attention.h"

namespace trimtab {

/// What SelfAttention keeps between Forward and Backward.
struct SelfAttentionSaved {
  LinearSaved linear_qkv;
  // [N, (H + 2*KV)*D / tp], undefined where the model has no such step:
  Tensor projected;  // before it is clamped
  Tensor unnormed;   // before the norms of heads
  Tensor head_rstd;  // [N, (H + KV) / tp], of those
  CoreAttentionSaved core;

  bool defined() const { return core.qkv.defined(); }
  bool has_input() const { return linear_qkv.defined(); }
  void DropInput() { linear_qkv = {}; }
};

class SelfAttention {
 public:
  SelfAttention(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const LayerKind& kind);

  /// y [rows, C], an activation, from x [rows, C]; plus `residual` [rows, C], where that is
  /// defined.
  Tensor Forward(const LayerContext& context, LinearOperand x, SelfAttentionSaved& saved,
                 const Tensor& residual) const;
  /// Where a fused op may write x itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return linear_qkv_.InputTarget(context);
  }
  /// Keeps x again where the norm before it is recomputed.
  void RecomputeInput(const LayerContext& context, const LinearOperand& x,
                      SelfAttentionSaved& saved) const {
    linear_qkv_.Keep(context, x, saved.linear_qkv);
  }
  /// Where the op that adds to dy may write its copies too.
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const {
    return core_.GradientTarget(context);
  }
  /// dx [rows, C] from dy [rows, C].
  Tensor Backward(const LayerContext& context, SelfAttentionSaved& saved, LinearOperand dy,
                  bool accumulate) const;

 private:
  /// The norms of query and key heads: qkv becomes saved.unnormed, its result qkv; and dqkv, in
  /// place, the gradient of saved.unnormed.
  void HeadNormsForward(const LayerContext& context, SelfAttentionSaved& saved) const;
  void HeadNormsBackward(const LayerContext& context, const SelfAttentionSaved& saved, Tensor& dqkv,
                         bool accumulate) const;

  /// Whether the gradient of qkv, turned back, is that of the projection, and nothing else reads
  /// it.
  bool TurnsIntoFp8(const LayerContext& context) const;

  ColumnParallelLinear linear_qkv_;
  CoreAttention core_;
  Parameter* query_norm_ = nullptr;
  Parameter* key_norm_ = nullptr;
};

}  // namespace trimtab

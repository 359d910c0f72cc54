// Causal self-attention: fused projection, rotary positions, attention, output projection.
#pragma once

#include <string>

#include "engine/layers/linear.h"
#include "engine/ops/attention.h"

namespace trimtab {

/// What SelfAttention keeps between Forward and Backward.
struct SelfAttentionSaved {
  LinearSaved linear_qkv;
  Tensor qkv;  // [N, (H + 2*KV)*D / tp], rotated
  // Undefined, like linear_proj, where core_attn is recomputed:
  Tensor out;          // [N, C / tp]
  Tensor log_sum_exp;  // [B, H / tp, T / cp]
  LinearSaved linear_proj;
};

class SelfAttention {
 public:
  SelfAttention(ParameterStore& store, const LayerContext& context, const ModuleName& name);

  /// y [rows, C], an activation, from x [rows, C].
  Tensor Forward(const LayerContext& context, LinearOperand x, SelfAttentionSaved& saved) const;
  /// Where a fused op may write x itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return linear_qkv_.InputTarget(context);
  }
  /// Keeps x again where the norm before it is recomputed.
  void RecomputeInput(const LayerContext& context, const LinearOperand& x,
                      SelfAttentionSaved& saved) const {
    linear_qkv_.Keep(context, x, saved.linear_qkv);
  }
  /// dx [rows, C] from dy [rows, C].
  Tensor Backward(const LayerContext& context, SelfAttentionSaved& saved, const Tensor& dy,
                  bool accumulate) const;

 private:
  /// Attention itself: saved.out and saved.log_sum_exp from saved.qkv.
  void ForwardCore(const LayerContext& context, SelfAttentionSaved& saved) const;

  ColumnParallelLinear linear_qkv_;
  RowParallelLinear linear_proj_;
};

}  // namespace trimtab

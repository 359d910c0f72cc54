// Causal self-attention: fused projection, norms of query and key heads if the model has them,
// rotary positions, attention, output projection.
#pragma once

#include <string>

#include "engine/layers/linear.h"
#include "engine/ops/attention.h"

namespace trimtab {

/// What SelfAttention keeps between Forward and Backward.
struct SelfAttentionSaved {
  LinearSaved linear_qkv;
  Tensor projected;  // [N, (H + 2*KV)*D / tp]: before the norms of heads; undefined without them
  Tensor head_rstd;  // [N, (H + KV) / tp], of those
  Tensor qkv;        // [N, (H + 2*KV)*D / tp], rotated
  // Undefined, like linear_proj, where core_attn is recomputed:
  Tensor out;          // [N, C / tp]
  Tensor log_sum_exp;  // [B, H / tp, T / cp]
  LinearSaved linear_proj;
};

class SelfAttention {
 public:
  SelfAttention(ParameterStore& store, const LayerContext& context, const std::string& name,
                const LayerKind& kind);

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
  /// Of a micro batch on this rank.
  AttentionShape ShapeOf(const LayerContext& context) const;
  /// The norms of query and key heads: saved.qkv becomes saved.projected, its result saved.qkv; and
  /// dqkv, in place, the gradient of saved.projected.
  void HeadNormsForward(const LayerContext& context, SelfAttentionSaved& saved) const;
  void HeadNormsBackward(const LayerContext& context, const SelfAttentionSaved& saved, Tensor& dqkv,
                         bool accumulate) const;
  /// Attention itself: saved.out and saved.log_sum_exp from saved.qkv.
  void ForwardCore(const LayerContext& context, SelfAttentionSaved& saved) const;

  LayerKind kind_;
  ColumnParallelLinear linear_qkv_;
  RowParallelLinear linear_proj_;
  Parameter* query_norm_ = nullptr;
  Parameter* key_norm_ = nullptr;
};

}  // namespace trimtab

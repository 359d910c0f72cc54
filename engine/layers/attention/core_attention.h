// Causal attention over queries, keys and values that are made, and the projection of its result:
// what all kinds of self-attention end with.
#pragma once

#include "engine/config/model/layer_spec.h"
#include "engine/layers/linear/linear.h"
#include "engine/ops/attention/attention.h"

namespace trimtab {

/// What CoreAttention keeps between Forward and Backward.
struct CoreAttentionSaved {
  Tensor qkv;  // [N, (H*D + KV*(D + Dv)) / tp], rotated: made before Forward
  // Undefined where core_attn is recomputed:
  Tensor out;          // [N, H*Dv / tp]
  Tensor log_sum_exp;  // [B, H / tp, T / cp]
  LinearSaved linear_proj;
};

class CoreAttention {
 public:
  /// `name` is that of the attention: declares NAME.linear_proj, and NAME.softmax_offset if it has
  /// sinks.
  CoreAttention(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const AttentionSpec& spec);

  const AttentionSpec& spec() const { return spec_; }

  /// Of a micro batch on this rank.
  AttentionShape ShapeOf(const LayerContext& context) const;
  /// y [rows, C], an activation, from saved.qkv; plus `residual` [rows, C], where that is defined.
  Tensor Forward(const LayerContext& context, CoreAttentionSaved& saved,
                 const Tensor& residual) const;
  /// The same from the result of attention [N, H*Dv / tp]; keeps nothing.
  Tensor Project(const LayerContext& context, const Tensor& out, const Tensor& residual) const;
  /// Where the op that adds to dy may write its copies too.
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const {
    return linear_proj_.GradientTarget(context);
  }
  /// The gradient of saved.qkv from dy [rows, C].
  Tensor Backward(const LayerContext& context, CoreAttentionSaved& saved, LinearOperand dy,
                  bool accumulate) const;

 private:
  /// saved.out and saved.log_sum_exp from saved.qkv.
  void Attend(const LayerContext& context, CoreAttentionSaved& saved) const;

  AttentionSpec spec_;
  RowParallelLinear linear_proj_;
  Parameter* sinks_ = nullptr;
};

}  // namespace trimtab

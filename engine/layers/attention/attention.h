// Causal self-attention: fused projection, clamped if its specification says so, norms of queries
// and keys if it has them, rotary positions, attention.
#pragma once

#include <optional>

#include "engine/layers/attention/core_attention.h"
#include "engine/layers/attention/query_key_norms.h"

namespace trimtab {

/// What SelfAttention keeps between Forward and Backward.
struct SelfAttentionSaved {
  LinearSaved linear_qkv;
  Tensor projected;  // [N, (H + 2*KV)*D / tp], before it is clamped; where it is
  QueryKeyNormsSaved norms;
  CoreAttentionSaved core;

  bool defined() const { return core.qkv.defined(); }
  bool has_input() const { return linear_qkv.defined(); }
  void DropInput() { linear_qkv = {}; }
};

class SelfAttention {
 public:
  using Spec = AttentionSpec;
  using Saved = SelfAttentionSaved;

  SelfAttention(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const AttentionSpec& spec);

  /// y [rows, C], an activation, from x [rows, C]; plus `residual` [rows, C], where that is
  /// defined.
  Tensor Forward(const LayerContext& context, LinearOperand x, SelfAttentionSaved& saved,
                 const Tensor& residual) const;
  /// Where a fused op may write x itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return linear_qkv_.InputTarget(context);
  }
  /// Keeps x again where the norm before it is recomputed.
  void Recompute(const LayerContext& context, const LinearOperand& x,
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
  /// Whether the gradient of qkv, turned back, is that of the projection, and nothing else reads
  /// it.
  bool TurnsIntoFp8() const;

  const AttentionSpec& spec() const { return core_.spec(); }
  float clip() const { return static_cast<float>(spec().qkv_clip); }

  ColumnParallelLinear linear_qkv_;
  CoreAttention core_;
  std::optional<QueryKeyNorms> norms_;
};

}  // namespace trimtab

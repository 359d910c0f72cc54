// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
//
// Every tensor-parallel rank compresses its rows of the residual stream by itself: the projections
// down are small and whole on all of them. Those back up are split by heads; with sequence
// parallelism they gather the compressed vectors, which are shorter than what these are made of.
// Attention itself runs over whole queries, keys and values. Serving caches the compressed
// key/value vector, normed, and the rotated part of the key that all heads share, and attends to
// these.
#pragma once

#include "engine/layers/attention/core_attention.h"
#include "engine/layers/linear/replicated_linear.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// What NormedProjection keeps between Forward and Backward.
struct NormedProjectionSaved {
  Tensor compressed;  // [rows, rank]
  NormSaved norm;
  LinearSaved up;
};

/// A compressed vector's norm, then its projection to heads.
class NormedProjection {
 public:
  NormedProjection(ParameterStore& store, const LayerContext& context, const ModuleName& norm_name,
                   const ModuleName& up_name, const AttentionSpec& spec, int64_t rank, int64_t out);

  /// y [N, out / tp], transient, from what is moved to saved.compressed [rows, rank].
  Tensor Forward(const LayerContext& context, Tensor compressed,
                 NormedProjectionSaved& saved) const;
  /// The norm alone, of what no backward pass needs.
  Tensor Normed(const LayerContext& context, const Tensor& compressed) const;
  /// Of the projection.
  Parameter& weight() const { return up_.weight(); }
  /// The gradient of saved.compressed from dy [N, out / tp].
  Tensor Backward(const LayerContext& context, const NormedProjectionSaved& saved, const Tensor& dy,
                  bool accumulate) const;

 private:
  Norm norm_;
  ColumnParallelLinear up_;
};

/// What LatentAttention keeps between Forward and Backward.
struct LatentAttentionSaved {
  Tensor input;                 // [rows, C]
  LinearSaved linear_q;         // where queries are not compressed
  NormedProjectionSaved query;  // where they are
  NormedProjectionSaved key_value;
  CoreAttentionSaved core;

  bool defined() const { return core.qkv.defined(); }
  bool has_input() const { return input.defined(); }
  void DropInput() {
    input = {};
    linear_q = {};
  }
};

/// As SelfAttention, of a model whose attention is latent.
class LatentAttention {
 public:
  using Spec = LatentSpec;
  using Saved = LatentAttentionSaved;

  LatentAttention(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                  const LatentSpec& spec);

  /// y [rows, C], an activation, from x [rows, C]; plus `residual` [rows, C], where that is
  /// defined.
  Tensor Forward(const LayerContext& context, const LinearOperand& x, LatentAttentionSaved& saved,
                 const Tensor& residual) const;
  /// x is stored: two projections read it.
  std::optional<Fp8Target> InputTarget(const LayerContext&) const { return {}; }
  /// Keeps x again where the norm before it is recomputed.
  void Recompute(const LayerContext& context, const LinearOperand& x,
                 LatentAttentionSaved& saved) const;
  /// As of SelfAttention.
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const {
    return core_.GradientTarget(context);
  }
  /// dx [rows, C] from dy [rows, C].
  Tensor Backward(const LayerContext& context, LatentAttentionSaved& saved, LinearOperand dy,
                  bool accumulate) const;

 private:
  /// Queries [N, H*D / tp], transient.
  Tensor Queries(const LayerContext& context, const LinearOperand& x,
                 LatentAttentionSaved& saved) const;
  /// saved.core.qkv from x.
  void MakeHeads(const LayerContext& context, const LinearOperand& x,
                 LatentAttentionSaved& saved) const;
  /// What of the cache is made of x: the compressed vector [rows, rank], and what of the key turns
  /// [rows, R].
  void Compress(const LayerContext& context, const LinearOperand& x, Tensor& compressed,
                Tensor& turning) const;
  /// Forward over a paged cache (latent_serving.cc).
  Tensor Serve(const LayerContext& context, const LinearOperand& x, const Tensor& residual) const;
  /// The gradient of x as far as queries make it, from theirs.
  Tensor QueriesBackward(const LayerContext& context, const LatentAttentionSaved& saved,
                         const Tensor& dquery, bool accumulate) const;

  LatentConfig latent_;
  // Either the first, or the next two.
  std::optional<ColumnParallelLinear> linear_q_;
  std::optional<ReplicatedLinear> query_down_;
  std::optional<NormedProjection> query_up_;
  ReplicatedLinear key_value_down_;  // the compressed vector, then what of the key turns
  NormedProjection key_value_up_;
  CoreAttention core_;
};

}  // namespace trimtab

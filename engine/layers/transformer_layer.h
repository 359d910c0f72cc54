// One transformer layer: attention and an MLP, dense or of experts, added to the residual stream as
// BlockKind says.
#pragma once

#include <optional>

#include "engine/layers/attention.h"
#include "engine/layers/latent_attention.h"
#include "engine/layers/mlp.h"
#include "engine/layers/moe_layer.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// What a norm after attention or MLP keeps; nothing in blocks without.
struct PostNormSaved {
  Tensor input;  // [rows, C], the result of attention or MLP, or with post_norm the stream after it
  NormSaved norm;
};

/// Everything a layer keeps between Forward and Backward, beside its input. Norms and what goes
/// into the linear layers after them are undefined where they are recomputed, and so is the whole
/// MLP.
struct TransformerLayerSaved {
  NormSaved input_norm;
  SelfAttentionSaved attention;
  LatentAttentionSaved latent;  // in the place of `attention`, where it is latent
  PostNormSaved post_attention;
  Tensor middle;       // [rows, C], the residual stream between attention and MLP; undefined where
                       // they stand side by side, and where it is the MLP's own input
  NormSaved mlp_norm;  // undefined where the MLP takes what attention takes, or the stream
  MlpSaved mlp;        // of a dense MLP
  MoeSaved moe;        // of experts
  PostNormSaved post_mlp;

  /// Nothing of a layer is kept where all of it is recomputed.
  bool defined() const { return attention.defined() || latent.defined(); }
};

class TransformerLayer {
 public:
  /// The name of layer `number` of a model: "decoder.layers.3".
  static ModuleName NameOf(int64_t number);

  /// Layer `number` of the model.
  TransformerLayer(ParameterStore& store, const LayerContext& context, int64_t number);

  /// The residual stream after the layer [rows, C], an activation, from the one before it.
  Tensor Forward(const LayerContext& context, const Tensor& x, TransformerLayerSaved& saved) const;
  /// Turns dx, the gradient of the output [rows, C], into that of the input, in place.
  void Backward(const LayerContext& context, const Tensor& x, TransformerLayerSaved& saved,
                Tensor& dx, bool accumulate) const;

  /// The layer's experts; nullptr where its MLP is dense.
  const MoeLayer* moe() const { return moe_ ? &*moe_ : nullptr; }

 private:
  TransformerLayer(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                   const LayerKind& kind);

  /// use(layer, saved) with the attention and what it keeps.
  template <typename Use>
  auto WithAttention(TransformerLayerSaved& saved, const Use& use) const {
    return latent_ ? use(*latent_, saved.latent) : use(*attention_, saved.attention);
  }
  /// use(layer, saved) with the MLP, dense or of experts, and what it keeps.
  template <typename Use>
  auto WithMlp(TransformerLayerSaved& saved, const Use& use) const {
    return moe_ ? use(*moe_, saved.moe) : use(*mlp_, saved.mlp);
  }
  bool parallel() const {
    return block_ == BlockKind::kParallel || block_ == BlockKind::kParallelShared;
  }
  bool deep_norm() const { return block_ == BlockKind::kDeepNorm; }
  bool post_norm() const { return block_ == BlockKind::kPostNorm; }
  /// Whether attention or MLP adds the stream to its result itself: nothing comes between.
  bool AddsStream(const std::optional<Norm>& norm) const;
  /// The stream after a branch: scale * x + norm(branch), with post_norm norm(x + branch), without
  /// a norm scale * x + branch; in the memory of the branch if it can be. Where AddsStream, the
  /// branch has x in it.
  Tensor AddBranch(const LayerContext& context, const std::optional<Norm>& norm, const Tensor& x,
                   Tensor branch, PostNormSaved& saved) const;
  /// The gradient of the branch, from dx, that of AddBranch's result; dx becomes that of the sum.
  Tensor BranchGradient(const LayerContext& context, const std::optional<Norm>& norm,
                        const PostNormSaved& saved, Tensor& dx, bool accumulate) const;
  /// What the norm of the MLP reads.
  const Tensor& MlpNormInput(const Tensor& x, const TransformerLayerSaved& saved) const {
    return parallel() ? x : saved.middle;
  }
  /// The results of the norms; without one, the stream.
  LinearOperand AttentionInput(const LayerContext& context, const Tensor& x,
                               TransformerLayerSaved& saved) const;
  LinearOperand MlpInput(const LayerContext& context, const Tensor& x,
                         TransformerLayerSaved& saved) const;
  /// Where the norm of the MLP may write the gradient that attention's projection gets.
  std::optional<Fp8Target> MiddleTarget(const LayerContext& context) const;
  /// The gradients of what attention and the MLP got, from those of their results.
  Tensor AttentionBackward(const LayerContext& context, LinearOperand dy,
                           TransformerLayerSaved& saved, bool accumulate) const;
  Tensor MlpBackward(const LayerContext& context, const Tensor& dy, TransformerLayerSaved& saved,
                     bool accumulate) const;
  /// Of deep_norm's scale * n(x) + f(n(x)): turns dx, the gradient of that, into that of x, given
  /// what flows back through f.
  void NormedGradient(const LayerContext& context, const Norm& norm, const Tensor& x,
                      const NormSaved& saved, const Tensor& dbranch, Tensor& dx,
                      bool accumulate) const;
  Tensor ForwardInParallel(const LayerContext& context, const Tensor& x,
                           TransformerLayerSaved& saved) const;
  void BackwardInParallel(const LayerContext& context, const Tensor& x,
                          TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const;

  /// Drop what of norms and MLP is recomputed, once attention or the MLP has used it.
  void DropAttentionInput(const LayerContext& context, TransformerLayerSaved& saved) const;
  void DropMlp(const LayerContext& context, TransformerLayerSaved& saved) const;
  /// Make it again.
  void RecomputeAttentionInput(const LayerContext& context, const Tensor& x,
                               TransformerLayerSaved& saved) const;
  void RecomputeMlp(const LayerContext& context, const Tensor& x,
                    TransformerLayerSaved& saved) const;

  BlockKind block_;
  float stream_scale_;                      // multiplies what attention and MLP are added to
  std::optional<Norm> input_norm_;          // not with post_norm
  std::optional<SelfAttention> attention_;  // one of the two
  std::optional<LatentAttention> latent_;
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> mlp_norm_;  // nor where the MLP takes what attention takes
  std::optional<Mlp> mlp_;        // one of the two
  std::optional<MoeLayer> moe_;
  std::optional<Norm> post_mlp_norm_;
};

}  // namespace trimtab

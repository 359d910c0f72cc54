// One transformer layer: attention and MLP, dense or of experts, added to the residual stream as
// BlockKind says.
#pragma once

#include <optional>
#include <string>

#include "engine/layers/attention.h"
#include "engine/layers/mlp.h"
#include "engine/layers/moe_layer.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// What a norm after attention or MLP keeps; nothing in blocks without.
struct PostNormSaved {
  Tensor input;  // [rows, C], the result of attention or MLP
  NormSaved norm;
};

/// Everything a layer keeps between Forward and Backward, beside its input. Norms and what goes
/// into the linear layers after them are undefined where they are recomputed, and so is the whole
/// MLP.
struct TransformerLayerSaved {
  NormSaved input_norm;
  SelfAttentionSaved attention;
  PostNormSaved post_attention;
  Tensor middle;       // [rows, C], the residual stream between attention and MLP; undefined where
                       // they stand side by side
  NormSaved mlp_norm;  // undefined where the MLP takes what attention takes
  MlpSaved mlp;        // of a dense MLP
  MoeSaved moe;        // of experts
  PostNormSaved post_mlp;

  /// Nothing of a layer is kept where all of it is recomputed.
  bool defined() const { return attention.qkv.defined(); }
};

class TransformerLayer {
 public:
  /// The name of layer `number` of a model: "decoder.layers.3".
  static std::string NameOf(int64_t number);

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
  TransformerLayer(ParameterStore& store, const LayerContext& context, const std::string& name,
                   const LayerKind& kind);

  bool parallel() const {
    return block_ == BlockKind::kParallel || block_ == BlockKind::kParallelShared;
  }
  /// use(layer, saved) with the MLP, dense or of experts, and what it keeps.
  template <typename Use>
  auto WithMlp(TransformerLayerSaved& saved, const Use& use) const {
    return moe_ ? use(*moe_, saved.moe) : use(*mlp_, saved.mlp);
  }
  /// The MLP's result from what goes into it, and the gradient of that from dy.
  Tensor MlpForward(const LayerContext& context, LinearOperand x,
                    TransformerLayerSaved& saved) const;
  Tensor MlpBackward(const LayerContext& context, TransformerLayerSaved& saved, const Tensor& dy,
                     bool accumulate) const;
  /// What the norm of the MLP reads.
  const Tensor& MlpNormInput(const Tensor& x, const TransformerLayerSaved& saved) const {
    return parallel() ? x : saved.middle;
  }
  /// The results of the norms.
  LinearOperand AttentionInput(const LayerContext& context, const Tensor& x,
                               TransformerLayerSaved& saved) const;
  LinearOperand MlpInput(const LayerContext& context, const Tensor& x,
                         TransformerLayerSaved& saved) const;
  Tensor ForwardInParallel(const LayerContext& context, const Tensor& x,
                           TransformerLayerSaved& saved) const;
  void BackwardInParallel(const LayerContext& context, const Tensor& x,
                          TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const;

  /// Drop what of norms and MLP is recomputed, once attention or the MLP has used it.
  static void DropAttentionInput(const LayerContext& context, TransformerLayerSaved& saved);
  void DropMlp(const LayerContext& context, TransformerLayerSaved& saved) const;
  /// Make it again.
  void RecomputeAttentionInput(const LayerContext& context, const Tensor& x,
                               TransformerLayerSaved& saved) const;
  void RecomputeMlp(const LayerContext& context, const Tensor& x,
                    TransformerLayerSaved& saved) const;

  BlockKind block_;
  Norm input_norm_;
  SelfAttention attention_;
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> mlp_norm_;  // not where the MLP takes what attention takes
  std::optional<Mlp> mlp_;        // one of the two
  std::optional<MoeLayer> moe_;
  std::optional<Norm> post_mlp_norm_;
};

}  // namespace trimtab

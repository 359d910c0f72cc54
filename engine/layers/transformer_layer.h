// One pre-norm transformer layer: x + attention(norm(x)), then x + mlp(norm(x)), where the MLP may
// be one of experts.
#pragma once

#include <optional>
#include <string>

#include "engine/layers/attention.h"
#include "engine/layers/mlp.h"
#include "engine/layers/moe_layer.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// Everything a layer keeps between Forward and Backward, beside its input. Norms and what goes
/// into the linear layers after them are undefined where they are recomputed, and so is the whole
/// MLP.
struct TransformerLayerSaved {
  NormSaved input_norm;
  SelfAttentionSaved attention;
  Tensor middle;  // [rows, C], the residual stream between attention and MLP
  NormSaved mlp_norm;
  MlpSaved mlp;  // of a dense MLP
  MoeSaved moe;  // of experts

  /// Nothing of a layer is kept where all of it is recomputed.
  bool defined() const { return middle.defined(); }
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
  /// use(layer, saved) with the MLP, dense or of experts, and what it keeps.
  template <typename Use>
  auto WithMlp(TransformerLayerSaved& saved, const Use& use) const {
    return moe_ ? use(*moe_, saved.moe) : use(*mlp_, saved.mlp);
  }
  /// Drops what of norms and MLP is recomputed, once attention or the MLP has used it.
  static void DropInputNorm(const LayerContext& context, TransformerLayerSaved& saved);
  void DropMlp(const LayerContext& context, TransformerLayerSaved& saved) const;
  /// Make it again.
  void RecomputeInputNorm(const LayerContext& context, const Tensor& x,
                          TransformerLayerSaved& saved) const;
  void RecomputeMlp(const LayerContext& context, TransformerLayerSaved& saved) const;

  Norm input_norm_;
  SelfAttention attention_;
  Norm mlp_norm_;
  std::optional<Mlp> mlp_;  // one of the two
  std::optional<MoeLayer> moe_;
};

}  // namespace trimtab

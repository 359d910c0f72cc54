#include "engine/layers/transformer_layer.h"

#include "engine/ops/elementwise.h"

namespace trimtab {

std::string TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + std::to_string(number);
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   const std::string& name)
    : input_norm_(store, context, name + ".input_layernorm"),
      attention_(store, context, name + ".self_attention"),
      mlp_norm_(store, context, name + ".pre_mlp_layernorm"),
      mlp_(store, context, name + ".mlp") {}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  saved.middle = attention_.Forward(
      context, input_norm_.Forward(context, x, saved.input_norm, attention_.InputTarget(context)),
      saved.attention);
  Add(x, saved.middle);
  Tensor y = mlp_.Forward(
      context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm, mlp_.InputTarget(context)),
      saved.mlp);
  Add(saved.middle, y);
  return y;
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                const TransformerLayerSaved& saved, Tensor& dx,
                                bool accumulate) const {
  {
    const Tensor dmlp = mlp_.Backward(context, saved.mlp, dx, accumulate);
    mlp_norm_.Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate);
  }
  const Tensor dattention = attention_.Backward(context, saved.attention, dx, accumulate);
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab

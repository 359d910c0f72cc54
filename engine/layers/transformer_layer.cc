#include "engine/layers/transformer_layer.h"

#include <utility>

#include "engine/layers/recompute.h"
#include "engine/ops/elementwise.h"

namespace trimtab {

ModuleName TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + ModuleName(std::to_string(number));
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   const ModuleName& name)
    : input_norm_(store, context, name + ".input_layernorm"),
      attention_(store, context, name + ".self_attention"),
      mlp_norm_(store, context, name + ".pre_mlp_layernorm"),
      mlp_(store, context, name + ".mlp") {}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  saved.middle = attention_.Forward(
      context, input_norm_.Forward(context, x, saved.input_norm, attention_.InputTarget(context)),
      saved.attention);
  DropInputNorm(context, saved);
  Add(x, saved.middle);
  Tensor y = mlp_.Forward(
      context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm, mlp_.InputTarget(context)),
      saved.mlp);
  DropMlp(context, saved);
  Add(saved.middle, y);
  return y;
}

void TransformerLayer::DropInputNorm(const LayerContext& context, TransformerLayerSaved& saved) {
  if (!context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.input_norm = {};
  saved.attention.linear_qkv = {};
}

void TransformerLayer::DropMlp(const LayerContext& context, TransformerLayerSaved& saved) {
  if (context.Recomputes(RecomputeModule::kMlp)) {
    saved.mlp_norm = {};
    saved.mlp = {};
  } else if (context.Recomputes(RecomputeModule::kLayerNorm)) {
    saved.mlp_norm = {};
    saved.mlp.linear_fc1 = {};
  }
}

void TransformerLayer::RecomputeInputNorm(const LayerContext& context, const Tensor& x,
                                          TransformerLayerSaved& saved) const {
  if (saved.attention.linear_qkv.defined()) return;
  const RecomputePass recompute(context.device);
  attention_.RecomputeInput(
      context, input_norm_.Forward(context, x, saved.input_norm, attention_.InputTarget(context)),
      saved.attention);
}

void TransformerLayer::RecomputeMlp(const LayerContext& context,
                                    TransformerLayerSaved& saved) const {
  if (saved.mlp.linear_fc1.defined()) return;
  const RecomputePass recompute(context.device);
  mlp_.Recompute(
      context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm, mlp_.InputTarget(context)),
      saved.mlp);
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const {
  RecomputeMlp(context, saved);
  {
    const Tensor dmlp = mlp_.Backward(context, saved.mlp, dx, accumulate);
    mlp_norm_.Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate);
  }
  RecomputeInputNorm(context, x, saved);
  const Tensor dattention = attention_.Backward(context, saved.attention, dx, accumulate);
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab

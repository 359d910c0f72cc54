#include "engine/layers/transformer_layer.h"

#include <utility>

#include "engine/layers/recompute.h"
#include "engine/ops/elementwise.h"

namespace trimtab {

std::string TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + std::to_string(number);
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   int64_t number)
    : input_norm_(store, context, NameOf(number) + ".input_layernorm"),
      attention_(store, context, NameOf(number) + ".self_attention"),
      mlp_norm_(store, context, NameOf(number) + ".pre_mlp_layernorm") {
  const std::string name = NameOf(number) + ".mlp";
  if (context.model.layer_kind(number).moe) {
    moe_.emplace(store, context, name);
  } else {
    mlp_.emplace(store, context, name, context.model.ffn_hidden_size);
  }
}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  saved.middle = attention_.Forward(
      context, input_norm_.Forward(context, x, saved.input_norm, attention_.InputTarget(context)),
      saved.attention);
  DropInputNorm(context, saved);
  Add(x, saved.middle);
  Tensor y = WithMlp(saved, [&](const auto& mlp, auto& kept) {
    return mlp.Forward(
        context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm, mlp.InputTarget(context)),
        kept);
  });
  DropMlp(context, saved);
  Add(saved.middle, y);
  return y;
}

void TransformerLayer::DropInputNorm(const LayerContext& context, TransformerLayerSaved& saved) {
  if (!context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.input_norm = {};
  saved.attention.linear_qkv = {};
}

void TransformerLayer::DropMlp(const LayerContext& context, TransformerLayerSaved& saved) const {
  const bool all = context.Recomputes(RecomputeModule::kMlp);
  if (!all && !context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.mlp_norm = {};
  WithMlp(saved, [all](const auto&, auto& kept) {
    if (all) {
      kept = {};
    } else {
      kept.DropInput();
    }
  });
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
  WithMlp(saved, [&](const auto& mlp, auto& kept) {
    if (kept.has_input()) return;
    const RecomputePass recompute(context.device);
    mlp.Recompute(
        context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm, mlp.InputTarget(context)),
        kept);
  });
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const {
  RecomputeMlp(context, saved);
  {
    const Tensor dmlp = WithMlp(saved, [&](const auto& mlp, auto& kept) {
      return mlp.Backward(context, kept, dx, accumulate);
    });
    mlp_norm_.Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate);
  }
  RecomputeInputNorm(context, x, saved);
  const Tensor dattention = attention_.Backward(context, saved.attention, dx, accumulate);
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab

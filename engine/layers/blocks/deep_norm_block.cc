#include "engine/layers/blocks/deep_norm_block.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

DeepNormBlock::DeepNormBlock(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerSpec& spec)
    : stream_scale_(spec.residual.stream_scale),
      input_norm_(store, name + ".input_layernorm", spec.residual.norm, spec.residual.hidden_size),
      mixer_(store, context, name + ".self_attention", spec.mixer),
      mlp_norm_(store, name + ".pre_mlp_layernorm", spec.residual.norm, spec.residual.hidden_size),
      mlp_(store, context, name + ".mlp", spec.mlp) {}

Tensor DeepNormBlock::AddScaled(const LayerContext& context, const Tensor& stream,
                                Tensor result) const {
  Tensor scaled = context.New(stream.shape(), MemoryTag::kWorkspace);
  Copy(stream, scaled);
  ApplySoftCap({.scale = stream_scale_}, scaled);
  Add(scaled, result);
  return result;
}

Tensor DeepNormBlock::Forward(const LayerContext& context, const Tensor& x,
                              DeepNormBlockSaved& saved) const {
  LinearOperand input = input_norm_.Forward(context, x, saved.input_norm);
  Tensor stream = input.matrix;
  Tensor attention = mixer_.Forward(context, std::move(input), saved.mixer, /*residual=*/{});
  DropMixerInput(context, saved.input_norm, saved.mixer);
  saved.middle = AddScaled(context, stream, std::move(attention));
  input = mlp_norm_.Forward(context, saved.middle, saved.mlp_norm);
  stream = input.matrix;
  Tensor mlp = mlp_.Forward(context, std::move(input), saved.mlp, /*residual=*/{});
  DropMlp(context, saved.mlp_norm, saved.mlp);
  return AddScaled(context, stream, std::move(mlp));
}

void DeepNormBlock::NormedGradient(const LayerContext& context, const Norm& norm, const Tensor& x,
                                   const NormSaved& saved, const Tensor& dbranch, Tensor& dx,
                                   bool accumulate) const {
  Tensor dnormed = context.New(dx.shape(), MemoryTag::kWorkspace);
  Copy(dx, dnormed);
  ApplySoftCap({.scale = stream_scale_}, dnormed);
  Add(dbranch, dnormed);
  Fill(dx, 0.0f);
  norm.Backward(context, x, saved, dnormed, dx, accumulate);
}

void DeepNormBlock::Backward(const LayerContext& context, const Tensor& x,
                             DeepNormBlockSaved& saved, Tensor& dx, bool accumulate) const {
  if (!saved.mlp.has_input()) {
    const RecomputePass recompute(context.device);
    mlp_.Recompute(context, mlp_norm_.Forward(context, saved.middle, saved.mlp_norm), saved.mlp);
  }
  NormedGradient(context, mlp_norm_, saved.middle, saved.mlp_norm,
                 mlp_.Backward(context, saved.mlp, dx, accumulate), dx, accumulate);
  if (!saved.mixer.has_input()) {
    const RecomputePass recompute(context.device);
    mixer_.Recompute(context, input_norm_.Forward(context, x, saved.input_norm), saved.mixer);
  }
  NormedGradient(context, input_norm_, x, saved.input_norm,
                 mixer_.Backward(context, saved.mixer, LinearOperand(dx), accumulate), dx,
                 accumulate);
}

}  // namespace trimtab

#include "engine/layers/blocks/post_norm_block.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

PostNormBlock::PostNormBlock(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerSpec& spec)
    : mixer_(store, context, name + ".self_attention", spec.mixer),
      attention_norm_(store, name + ".post_attention_layernorm", spec.residual.norm,
                      spec.residual.hidden_size),
      mlp_norm_(store, name + ".post_mlp_layernorm", spec.residual.norm, spec.residual.hidden_size),
      mlp_(store, context, name + ".mlp", spec.mlp) {}

Tensor PostNormBlock::Forward(const LayerContext& context, const Tensor& x,
                              PostNormBlockSaved& saved) const {
  NormSaved none;
  saved.middle.input = mixer_.Forward(context, LinearOperand(x), saved.mixer, x);
  DropMixerInput(context, none, saved.mixer);
  const Tensor middle =
      attention_norm_.Forward(context, saved.middle.input, saved.middle.norm).matrix;
  saved.end.input = mlp_.Forward(context, LinearOperand(middle), saved.mlp, middle);
  DropMlp(context, none, saved.mlp);
  return mlp_norm_.Forward(context, saved.end.input, saved.end.norm).matrix;
}

void PostNormBlock::Backward(const LayerContext& context, const Tensor& x,
                             PostNormBlockSaved& saved, Tensor& dx, bool accumulate) const {
  if (!saved.mlp.has_input()) {
    const RecomputePass recompute(context.device);
    mlp_.Recompute(context, attention_norm_.Forward(context, saved.middle.input, saved.middle.norm),
                   saved.mlp);
  }
  dx = GradientThrough(context, mlp_norm_, saved.end.input, saved.end.norm, dx, accumulate);
  Add(mlp_.Backward(context, saved.mlp, dx, accumulate), dx);
  if (!saved.mixer.has_input()) {
    const RecomputePass recompute(context.device);
    mixer_.Recompute(context, LinearOperand(x), saved.mixer);
  }
  dx = GradientThrough(context, attention_norm_, saved.middle.input, saved.middle.norm, dx,
                       accumulate);
  Add(mixer_.Backward(context, saved.mixer, LinearOperand(dx), accumulate), dx);
}

}  // namespace trimtab

#include "engine/layers/blocks/parallel_block.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

std::optional<Norm> OwnNorm(ParameterStore& store, const ModuleName& name,
                            const ResidualSpec& spec) {
  if (spec.kind == BlockKind::kParallelShared) return std::nullopt;
  return std::optional<Norm>(std::in_place, store, name, spec.norm, spec.hidden_size);
}

}  // namespace

ParallelBlock::ParallelBlock(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerSpec& spec)
    : input_norm_(store, name + ".input_layernorm", spec.residual.norm, spec.residual.hidden_size),
      mixer_(store, context, name + ".self_attention", spec.mixer),
      mlp_norm_(OwnNorm(store, name + ".pre_mlp_layernorm", spec.residual)),
      mlp_(store, context, name + ".mlp", spec.mlp) {}

LinearOperand ParallelBlock::MixerInput(const LayerContext& context, const Tensor& x,
                                        ParallelBlockSaved& saved) const {
  // What the MLP reads too is not written in the form that attention's projection wants.
  return input_norm_.Forward(context, x, saved.input_norm,
                             mlp_norm_ ? mixer_.InputTarget(context) : std::nullopt);
}

LinearOperand ParallelBlock::MlpInput(const LayerContext& context, const Tensor& x,
                                      ParallelBlockSaved& saved) const {
  return mlp_norm_->Forward(context, x, saved.mlp_norm, mlp_.InputTarget(context));
}

Tensor ParallelBlock::Forward(const LayerContext& context, const Tensor& x,
                              ParallelBlockSaved& saved) const {
  LinearOperand input = MixerInput(context, x, saved);
  LinearOperand shared = mlp_norm_ ? LinearOperand() : input;
  const Tensor stream = mixer_.Forward(context, std::move(input), saved.mixer, x);
  input = mlp_norm_ ? MlpInput(context, x, saved) : std::move(shared);
  Tensor y = mlp_.Forward(context, std::move(input), saved.mlp, stream);
  DropMixerInput(context, saved.input_norm, saved.mixer);
  DropMlp(context, saved.mlp_norm, saved.mlp);
  return y;
}

void ParallelBlock::RecomputeMlp(const LayerContext& context, const Tensor& x,
                                 ParallelBlockSaved& saved) const {
  if (saved.mlp.has_input()) return;
  const RecomputePass recompute(context.device);
  if (mlp_norm_) return mlp_.Recompute(context, MlpInput(context, x, saved), saved.mlp);
  const LinearOperand input = MixerInput(context, x, saved);
  if (!saved.mixer.has_input()) mixer_.Recompute(context, LinearOperand(input), saved.mixer);
  mlp_.Recompute(context, LinearOperand(input), saved.mlp);
}

void ParallelBlock::Backward(const LayerContext& context, const Tensor& x,
                             ParallelBlockSaved& saved, Tensor& dx, bool accumulate) const {
  RecomputeMlp(context, x, saved);
  // Both read the gradient of the output before either adds to it.
  const Tensor dmlp = mlp_.Backward(context, saved.mlp, dx, accumulate);
  if (!saved.mixer.has_input()) {
    const RecomputePass recompute(context.device);
    mixer_.Recompute(context, MixerInput(context, x, saved), saved.mixer);
  }
  Tensor dattention = mixer_.Backward(context, saved.mixer, LinearOperand(dx), accumulate);
  if (mlp_norm_) {
    mlp_norm_->Backward(context, x, saved.mlp_norm, dmlp, dx, accumulate);
  } else {
    Add(dmlp, dattention);
  }
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab

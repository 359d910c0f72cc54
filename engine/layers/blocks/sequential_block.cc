#include "engine/layers/blocks/sequential_block.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

bool NormsBefore(const ResidualSpec& spec) { return spec.kind != BlockKind::kReorderedNorm; }
bool NormsAfter(const ResidualSpec& spec) { return spec.kind != BlockKind::kSequential; }

std::optional<Norm> NormIf(bool has_one, ParameterStore& store, const ModuleName& name,
                           const ResidualSpec& spec) {
  if (!has_one) return std::nullopt;
  return std::optional<Norm>(std::in_place, store, name, spec.norm, spec.hidden_size);
}

/// What a part that adds the stream to its result itself adds: all of it if no norm comes between.
Tensor AddedBy(const std::optional<Norm>& norm, const Tensor& stream) {
  return norm ? Tensor() : stream;
}

/// The stream after a part with `result`: with a norm of that, stream + norm(result) in new memory;
/// without, result, which has the stream in it.
Tensor AddResult(const LayerContext& context, const std::optional<Norm>& norm, const Tensor& stream,
                 Tensor result, ResultNormSaved& saved) {
  if (!norm) return result;
  saved.input = std::move(result);
  Tensor sum = norm->Forward(context, saved.input, saved.norm).matrix;
  Add(stream, sum);
  return sum;
}

/// The gradient of a part's result from dx, that of AddResult's.
Tensor ResultGradient(const LayerContext& context, const std::optional<Norm>& norm,
                      const ResultNormSaved& saved, const Tensor& dx, bool accumulate) {
  if (!norm) return dx;
  return GradientThrough(context, *norm, saved.input, saved.norm, dx, accumulate);
}

}  // namespace

SequentialBlock::SequentialBlock(ParameterStore& store, const LayerContext& context,
                                 const ModuleName& name, const LayerSpec& spec)
    : input_norm_(
          NormIf(NormsBefore(spec.residual), store, name + ".input_layernorm", spec.residual)),
      mixer_(store, context, name + ".self_attention", spec.mixer),
      post_attention_norm_(NormIf(NormsAfter(spec.residual), store,
                                  name + ".post_attention_layernorm", spec.residual)),
      mlp_norm_(
          NormIf(NormsBefore(spec.residual), store, name + ".pre_mlp_layernorm", spec.residual)),
      post_mlp_norm_(
          NormIf(NormsAfter(spec.residual), store, name + ".post_mlp_layernorm", spec.residual)),
      mlp_(store, context, name + ".mlp", spec.mlp) {}

LinearOperand SequentialBlock::MixerInput(const LayerContext& context, const Tensor& x,
                                          SequentialBlockSaved& saved) const {
  if (!input_norm_) return x;
  return input_norm_->Forward(context, x, saved.input_norm, mixer_.InputTarget(context));
}

LinearOperand SequentialBlock::MlpInput(const LayerContext& context,
                                        SequentialBlockSaved& saved) const {
  if (!mlp_norm_) return saved.middle;
  return mlp_norm_->Forward(context, saved.middle, saved.mlp_norm, mlp_.InputTarget(context));
}

Tensor SequentialBlock::Forward(const LayerContext& context, const Tensor& x,
                                SequentialBlockSaved& saved) const {
  LinearOperand input = MixerInput(context, x, saved);
  Tensor attention =
      mixer_.Forward(context, std::move(input), saved.mixer, AddedBy(post_attention_norm_, x));
  DropMixerInput(context, saved.input_norm, saved.mixer);
  saved.middle =
      AddResult(context, post_attention_norm_, x, std::move(attention), saved.post_attention);
  input = MlpInput(context, saved);
  Tensor mlp =
      mlp_.Forward(context, std::move(input), saved.mlp, AddedBy(post_mlp_norm_, saved.middle));
  DropMlp(context, saved.mlp_norm, saved.mlp);
  return AddResult(context, post_mlp_norm_, saved.middle, std::move(mlp), saved.post_mlp);
}

void SequentialBlock::Backward(const LayerContext& context, const Tensor& x,
                               SequentialBlockSaved& saved, Tensor& dx, bool accumulate) const {
  if (!saved.mlp.has_input()) {
    const RecomputePass recompute(context.device);
    mlp_.Recompute(context, MlpInput(context, saved), saved.mlp);
  }
  LinearOperand dattention;
  {
    const Tensor dmlp = mlp_.Backward(
        context, saved.mlp, ResultGradient(context, post_mlp_norm_, saved.post_mlp, dx, accumulate),
        accumulate);
    if (mlp_norm_) {
      dattention =
          mlp_norm_->Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate,
                              post_attention_norm_ ? std::nullopt : mixer_.GradientTarget(context));
    } else {
      Add(dmlp, dx);
    }
  }
  if (!saved.mixer.has_input()) {
    const RecomputePass recompute(context.device);
    mixer_.Recompute(context, MixerInput(context, x, saved), saved.mixer);
  }
  if (!dattention.fp8.rows.defined()) {
    dattention =
        ResultGradient(context, post_attention_norm_, saved.post_attention, dx, accumulate);
  }
  const Tensor dinput = mixer_.Backward(context, saved.mixer, std::move(dattention), accumulate);
  if (!input_norm_) return Add(dinput, dx);
  input_norm_->Backward(context, x, saved.input_norm, dinput, dx, accumulate);
}

}  // namespace trimtab

#include "engine/layers/mlp/mlp.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/layers/mlp/mlp_activation.h"
#include "engine/ops/fp8/fused_fp8.h"

namespace trimtab {
namespace {

RowBlocks Fc1Blocks(const MlpSpec& spec) {
  const int64_t ffn = spec.ffn_hidden_size;
  return spec.gated() ? RowBlocks{ffn, ffn} : RowBlocks{ffn};
}

}  // namespace

Mlp::Mlp(ParameterStore& store, const LayerContext& context, const ModuleName& name,
         const MlpSpec& spec)
    : spec_(spec),
      linear_fc1_(store, context, name + ".linear_fc1", spec.hidden_size, Fc1Blocks(spec),
                  spec.bias, spec.init_std),
      linear_fc2_(store, context, name + ".linear_fc2", spec.ffn_hidden_size, spec.hidden_size,
                  spec.bias, spec.output_init_std) {}

LinearOperand Mlp::ActivationForward(const LayerContext& context, const MlpSaved& saved) const {
  const ActivationKind kind = spec_.activation;
  if (std::optional<Fp8Target> target =
          HasFusedFp8(kind) ? linear_fc2_.InputTarget(context) : std::nullopt) {
    context.fp8->Write(context.parallel, *target,
                       [&](const Tensor& scale, Fp8Output& out, bool /*rehearsal*/) {
                         (spec_.gated() ? SwiGluForwardFp8 : GeluForwardFp8)(saved.fc1, scale, out);
                       });
    return std::move(target->out);
  }
  return MlpActivation(context, kind, saved.fc1);
}

LinearOperand Mlp::ActivationBackward(const LayerContext& context, const MlpSaved& saved,
                                      Tensor dactivation, bool accumulate) const {
  const ActivationKind kind = spec_.activation;
  const bool gated = spec_.gated();
  Parameter* bias = linear_fc1_.bias();
  // The fused op of SwiGLU makes no bias gradient.
  const bool fused = HasFusedFp8(kind) && !(gated && bias != nullptr);
  if (std::optional<Fp8Target> target =
          fused ? linear_fc1_.GradientTarget(context) : std::nullopt) {
    context.fp8->Write(context.parallel, *target,
                       [&](const Tensor& scale, Fp8Output& out, bool rehearsal) {
                         if (gated) return SwiGluBackwardFp8(saved.fc1, dactivation, scale, out);
                         // A rehearsal must not add to the gradient.
                         const bool sum = bias != nullptr && bias->spec.trainable && !rehearsal;
                         Tensor dbias = sum ? bias->gradient : Tensor();
                         GeluBackwardFp8(saved.fc1, dactivation, scale, out, dbias, accumulate);
                       });
    return std::move(target->out);
  }
  return MlpActivationBackward(context, kind, saved.fc1, std::move(dactivation));
}

LinearOperand Mlp::Activate(const LayerContext& context, LinearOperand x, MlpSaved& saved) const {
  Tensor gelu;
  if (FusesGelu(context)) {
    gelu = context.New({context.tokens(), linear_fc1_.weight().spec.rows}, MemoryTag::kActivations);
  }
  saved.fc1 =
      linear_fc1_.Forward(context, std::move(x), MemoryTag::kActivations, saved.linear_fc1, gelu);
  return gelu.defined() ? LinearOperand(gelu) : ActivationForward(context, saved);
}

LinearOperand Mlp::ActivateBackward(const LayerContext& context, const MlpSaved& saved,
                                    const Tensor& dy, bool accumulate) const {
  if (FusesGelu(context)) {
    return linear_fc2_.Backward(context, saved.linear_fc2, dy, accumulate, saved.fc1);
  }
  return ActivationBackward(
      context, saved, linear_fc2_.Backward(context, saved.linear_fc2, dy, accumulate), accumulate);
}

Tensor Mlp::Forward(const LayerContext& context, LinearOperand x, MlpSaved& saved,
                    const Tensor& residual) const {
  Tensor y = linear_fc2_.Forward(context, Activate(context, std::move(x), saved),
                                 MemoryTag::kActivations, saved.linear_fc2, residual);
  if (context.Recomputes(RecomputeModule::kMlpAct)) saved.linear_fc2 = {};
  return y;
}

void Mlp::Recompute(const LayerContext& context, LinearOperand x, MlpSaved& saved) const {
  if (saved.fc1.defined()) return linear_fc1_.Keep(context, x, saved.linear_fc1);
  linear_fc2_.Keep(context, Activate(context, std::move(x), saved), saved.linear_fc2);
}

Tensor Mlp::Backward(const LayerContext& context, MlpSaved& saved, const Tensor& dy,
                     bool accumulate) const {
  if (!saved.linear_fc2.defined()) {
    const RecomputePass recompute(context.device);
    linear_fc2_.Keep(context, ActivationForward(context, saved), saved.linear_fc2);
  }
  LinearOperand dfc1 = ActivateBackward(context, saved, dy, accumulate);
  return linear_fc1_.Backward(context, saved.linear_fc1, std::move(dfc1), accumulate);
}

}  // namespace trimtab

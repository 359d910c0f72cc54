#include "engine/ops/optimizer/adamw.h"

#include "engine/ops/cpu/optimizer/adamw.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

AdamWCoefficients Coefficients(const AdamWConfig& config, const float* scalars) {
  return MakeAdamWCoefficients(config.beta1, config.beta2, config.epsilon, config.weight_decay,
                               config.learning_rate_factor * scalars[kLearningRate],
                               scalars[kBiasCorrection], scalars[kRootCorrection],
                               scalars[kGradientScale]);
}

}  // namespace

OpRecord AdamWRecord(int64_t numel, const AdamWTypes& types) {
  int64_t bytes = SizeOf(types.gradient) + 2 * MasterWeightBytes(types.weight, types.master);
  bytes = bytes * numel + 4 * MomentBytes(types.moments, numel);
  return {.kind = OpKind::kAdamW, .dtype = types.weight, .dims = {numel}, .bytes = bytes};
}

void AdamW(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
           AdamWState& state) {
  constexpr OpKind kOp = OpKind::kAdamW;
  CheckPlainFloat(kOp, "gradient", gradient);
  Device& device = gradient.device();
  const int64_t n = gradient.numel();
  TRIMTAB_ASSERT(gradient.dtype() != DType::kF16, "adamw: gradient is fp16, expected fp32 or bf16");
  CheckOperand(kOp, "gradient", gradient, {n}, device, gradient.dtype());
  CheckOperand(kOp, "scalars", scalars, {kUpdateScalarCount}, device);
  CheckMasterWeight(kOp, {state.weight, state.master}, n, device);
  TRIMTAB_ASSERT(state.m.defined(), "adamw: m is undefined");
  CheckMoment(kOp, "m", {state.m, state.m_scale}, n, state.m.dtype(), device);
  CheckMoment(kOp, "v", {state.v, state.v_scale}, n, state.m.dtype(), device);
  const AdamWTypes types = {.weight = state.weight.dtype(),
                            .master = state.master.defined() ? state.master.dtype() : DType::kF32,
                            .moments = state.m.dtype(),
                            .gradient = gradient.dtype()};
  const OpScope scope(device, AdamWRecord(n, types));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::adamw)(config, scalars, gradient, state);
  }
  if (device.kind() != DeviceKind::kCpu || scalars.f32()[kApply] == 0.0f) return;
  AdamWCpu(device.threads(), Coefficients(config, scalars.f32()), gradient, state);
}

}  // namespace trimtab

#include "engine/ops/optimizer/momentum.h"

#include "engine/ops/cpu/optimizer/momentum.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

MomentumTypes TypesOf(const Tensor& gradient, const MomentumState& state) {
  MomentumTypes types;
  types.gradient = gradient.dtype();
  types.has_weight = state.weight.weight.defined();
  types.has_momentum = state.momentum.values.defined();
  types.has_update = state.update.defined();
  if (types.has_weight) types.weight = state.weight.weight.dtype();
  if (state.weight.master.defined()) types.master = state.weight.master.dtype();
  if (types.has_momentum) types.momentum = state.momentum.values.dtype();
  if (types.has_update) types.update = state.update.dtype();
  return types;
}

}  // namespace

OpRecord MomentumRecord(int64_t numel, const MomentumTypes& types) {
  int64_t bytes = numel * SizeOf(types.gradient);
  if (types.has_weight) bytes += 2 * numel * MasterWeightBytes(types.weight, types.master);
  if (types.has_momentum) bytes += 2 * MomentBytes(types.momentum, numel);
  if (types.has_update) bytes += numel * SizeOf(types.update);
  const DType dtype = types.has_weight ? types.weight : types.gradient;
  return {.kind = OpKind::kMomentum, .dtype = dtype, .dims = {numel}, .bytes = bytes};
}

void MomentumUpdate(const MomentumConfig& config, const Tensor& scalars, const Tensor& gradient,
                    MomentumState& state) {
  constexpr OpKind kOp = OpKind::kMomentum;
  CheckPlainFloat(kOp, "gradient", gradient);
  Device& device = gradient.device();
  const int64_t n = gradient.numel();
  TRIMTAB_ASSERT(gradient.dtype() != DType::kF16,
                 "momentum: gradient is fp16, expected fp32 or bf16");
  CheckOperand(kOp, "gradient", gradient, {n}, device, gradient.dtype());
  CheckOperand(kOp, "scalars", scalars, {kUpdateScalarCount}, device);
  const MomentumTypes types = TypesOf(gradient, state);
  if (types.has_weight) CheckMasterWeight(kOp, state.weight, n, device);
  if (types.has_momentum) CheckMoment(kOp, "momentum", state.momentum, n, types.momentum, device);
  if (types.has_update) {
    TRIMTAB_ASSERT(types.update != DType::kF16, "momentum: update is fp16, expected fp32 or bf16");
    CheckOperand(kOp, "update", state.update, {n}, device, types.update);
  }
  const OpScope scope(device, MomentumRecord(n, types));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::momentum)(config, scalars, gradient, state);
  }
  if (device.kind() != DeviceKind::kCpu || scalars.f32()[kApply] == 0.0f) return;
  const MomentumCoefficients coefficients = MakeMomentumCoefficients(
      config.momentum, config.nesterov, config.weight_decay,
      config.learning_rate_factor * scalars.f32()[kLearningRate], config.update_scale,
      types.has_momentum ? scalars.f32()[kGradientScale] : 1.0f);
  MomentumCpu(device.threads(), coefficients, gradient, state);
}

}  // namespace trimtab

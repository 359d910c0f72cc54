#include "engine/ops/adamw.h"

#include "engine/base/units.h"
#include "engine/ops/cpu/adamw.h"
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

void CheckState(const AdamWState& state, int64_t n, const Device& device) {
  constexpr OpKind kOp = OpKind::kAdamW;
  CheckPlainFloat(kOp, "weight", state.weight);
  CheckOperand(kOp, "weight", state.weight, {n}, device, state.weight.dtype());
  if (state.weight.dtype() == DType::kF32) {
    TRIMTAB_ASSERT(!state.master.defined(), "adamw: an fp32 weight is its own master");
  } else {
    const bool remainder = state.master.defined() && state.master.dtype() == DType::kU16;
    TRIMTAB_ASSERT(!remainder || state.weight.dtype() == DType::kBf16,
                   "adamw: a remainder below a {} weight, expected bf16",
                   Name(state.weight.dtype()));
    CheckOperand(kOp, "master", state.master, {n}, device, remainder ? DType::kU16 : DType::kF32);
  }
  CheckPlainFloat(kOp, "m", state.m);
  CheckOperand(kOp, "m", state.m, {n}, device, state.m.dtype());
  CheckOperand(kOp, "v", state.v, {n}, device, state.m.dtype());
  if (state.m.dtype() == DType::kF16) {
    CheckOperand(kOp, "m_scale", state.m_scale, {CeilDiv(n, kMomentBlock)}, device);
    CheckOperand(kOp, "v_scale", state.v_scale, {CeilDiv(n, kMomentBlock)}, device);
  }
}

}  // namespace

OpRecord ClipRecord(int64_t numel) {
  return {.kind = OpKind::kClip,
          .dims = {numel},
          .bytes = (numel + kUpdateScalarCount) * SizeOf(DType::kF32)};
}

void Clip(const Tensor& sums, float max_norm, Tensor& scalars) {
  constexpr OpKind kOp = OpKind::kClip;
  TRIMTAB_ASSERT(sums.defined(), "clip: sums is undefined");
  Device& device = sums.device();
  CheckOperand(kOp, "sums", sums, {sums.numel()}, device);
  CheckOperand(kOp, "scalars", scalars, {kUpdateScalarCount}, device);
  const OpScope scope(device, ClipRecord(sums.numel()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::clip)(sums, max_norm, scalars);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  double total = 0;
  for (int64_t i = 0; i < sums.numel(); ++i) total += static_cast<double>(sums.f32()[i]);
  float* values = scalars.f32();
  ClipByNorm(total, max_norm, values[kLossScale], values[kGradientNorm], values[kGradientScale],
             values[kApply]);
}

OpRecord AdamWRecord(int64_t numel, const AdamWTypes& types) {
  int64_t bytes = SizeOf(types.gradient) + 2 * SizeOf(types.weight) + 4 * SizeOf(types.moments);
  if (types.weight != DType::kF32) bytes += 2 * SizeOf(types.master);
  bytes *= numel;
  if (types.moments == DType::kF16) bytes += 4 * CeilDiv(numel, kMomentBlock) * SizeOf(DType::kF32);
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
  CheckState(state, n, device);
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

uint16_t MasterRemainder(float master) { return RemainderOfMaster(master); }
uint16_t MasterWeightBits(float master) { return WeightBitsOfMaster(master); }
float JoinMaster(uint16_t weight_bits, uint16_t remainder) {
  return MasterOfParts(weight_bits, remainder);
}

}  // namespace trimtab

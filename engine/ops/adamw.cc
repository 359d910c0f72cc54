#include "engine/ops/adamw.h"

#include <cmath>

#include "engine/ops/adamw_cpu.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

// In double: 1 - beta2^step loses its digits in float while step is small.
AdamWCoefficients Coefficients(const AdamWStep& step) {
  const double beta1 = step.beta1;
  const double beta2 = step.beta2;
  const auto count = static_cast<double>(step.step);
  return {
      .beta1 = step.beta1,
      .beta2 = step.beta2,
      .rest1 = static_cast<float>(1.0 - beta1),
      .rest2 = static_cast<float>(1.0 - beta2),
      .gradient_scale = step.gradient_scale,
      .keep = static_cast<float>(1.0 - static_cast<double>(step.learning_rate) * step.weight_decay),
      .step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(beta1, count))),
      .root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, count))),
      .epsilon = step.epsilon,
  };
}

}  // namespace

OpRecord AdamWRecord(int64_t numel) {
  return {.kind = OpKind::kAdamW, .dims = {numel}, .bytes = 7 * numel * SizeOf(DType::kF32)};
}

void AdamW(const AdamWStep& step, const Tensor& gradient, Tensor& parameter, Tensor& m, Tensor& v) {
  constexpr OpKind kOp = OpKind::kAdamW;
  Device& device = parameter.device();
  const int64_t n = parameter.numel();
  TRIMTAB_ASSERT(step.step >= 1, "adamw: step counts from 1, got {}", step.step);
  CheckOperand(kOp, "parameter", parameter, {n}, device);
  CheckOperand(kOp, "gradient", gradient, {n}, device);
  CheckOperand(kOp, "m", m, {n}, device);
  CheckOperand(kOp, "v", v, {n}, device);
  const OpScope scope(device, AdamWRecord(n));
  if (!RunsOnCpu(device, kOp)) return;
  AdamWCpu(device.threads(), Coefficients(step), n, gradient.f32(), parameter.f32(), m.f32(),
           v.f32());
}

}  // namespace trimtab

#include "engine/ops/optimizer/newton_schulz.h"

#include "engine/ops/cpu/optimizer/newton_schulz.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {

OpRecord NormalizeRecord(int64_t numel, DType dtype) {
  return {.kind = OpKind::kNormalize,
          .dtype = dtype,
          .dims = {numel},
          .bytes = 2 * numel * SizeOf(dtype) + SizeOf(DType::kF32)};
}

void Normalize(const Tensor& squares, float epsilon, Tensor& x) {
  constexpr OpKind kOp = OpKind::kNormalize;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "squares", squares, {1}, device);
  const OpScope scope(device, NormalizeRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::normalize)(squares, epsilon, x);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  NormalizeCpu(device.threads(), squares.f32()[0], epsilon, x);
}

OpRecord QuinticRecord(int64_t rows, DType dtype) {
  return {.kind = OpKind::kQuintic,
          .dtype = dtype,
          .dims = {rows * rows},
          .bytes = 3 * rows * rows * SizeOf(dtype)};
}

void Quintic(const QuinticFactors& factors, const Tensor& gram, Tensor& squared) {
  constexpr OpKind kOp = OpKind::kQuintic;
  CheckMatrix(kOp, "squared", squared);
  CheckPlainFloat(kOp, "squared", squared);
  Device& device = squared.device();
  const int64_t rows = squared.dim(0);
  CheckOperand(kOp, "squared", squared, {rows, rows}, device, squared.dtype());
  CheckOperand(kOp, "gram", gram, {rows, rows}, device, squared.dtype());
  const OpScope scope(device, QuinticRecord(rows, squared.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::quintic)(factors, gram, squared);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  QuinticCpu(device.threads(), factors, gram, squared);
}

}  // namespace trimtab

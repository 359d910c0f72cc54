#include "engine/ops/gemm.h"

#include <algorithm>

#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/gemm_cpu.h"

namespace trimtab {
namespace {

Shape Stored(int64_t rows, int64_t columns, Transpose transpose) {
  return transpose == Transpose::kNo ? Shape{rows, columns} : Shape{columns, rows};
}

MatrixView View(const Tensor& matrix, Transpose transpose) {
  // oneDNN asks for a leading dimension of at least 1 even when there are no columns.
  return {matrix.f32(), std::max<int64_t>(1, matrix.dim(1)), transpose == Transpose::kYes};
}

}  // namespace

OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, bool accumulate, DType dtype) {
  return {.kind = OpKind::kGemm,
          .dtype = dtype,
          .dims = {m, n, k},
          .flops = 2 * m * n * k,
          .bytes = (m * k + k * n + (accumulate ? 2 : 1) * m * n) * SizeOf(dtype)};
}

OpRecord BiasBackwardRecord(int64_t rows, int64_t columns) {
  return {.kind = OpKind::kBiasBackward,
          .dims = {rows, columns},
          .bytes = (rows * columns + columns) * SizeOf(DType::kF32)};
}

void Gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
          bool accumulate, const Tensor& bias) {
  constexpr OpKind kOp = OpKind::kGemm;
  CheckMatrix(kOp, "a", a);
  CheckMatrix(kOp, "b", b);
  CheckMatrix(kOp, "c", c);
  Device& device = c.device();
  const int64_t m = c.dim(0);
  const int64_t n = c.dim(1);
  const int64_t k = a.dim(trans_a == Transpose::kNo ? 1 : 0);
  CheckOperand(kOp, "a", a, Stored(m, k, trans_a), device);
  CheckOperand(kOp, "b", b, Stored(k, n, trans_b), device);
  CheckOperand(kOp, "c", c, {m, n}, device);
  if (bias.defined()) {
    CheckOperand(kOp, "bias", bias, {n}, device);
    TRIMTAB_ASSERT(!accumulate, "gemm: a bias of {} columns with accumulate would be added twice",
                   n);
  }
  const OpScope scope(device, GemmRecord(m, n, k, accumulate));
  if (device.kind() == DeviceKind::kCuda && GetCudaOps().gemm != nullptr) {
    GetCudaOps().gemm(a, trans_a, b, trans_b, c, accumulate, bias);
    return;
  }
  if (!RunsOnCpu(device, kOp) || c.numel() == 0) return;
  GemmCpu(device.threads(), m, n, k, View(a, trans_a), View(b, trans_b), c.f32(), accumulate,
          bias.defined() ? bias.f32() : nullptr);
}

void BiasBackward(const Tensor& dy, Tensor& dbias, bool accumulate) {
  constexpr OpKind kOp = OpKind::kBiasBackward;
  CheckMatrix(kOp, "dy", dy);
  Device& device = dy.device();
  CheckOperand(kOp, "dy", dy, dy.shape(), device);
  CheckOperand(kOp, "dbias", dbias, {dy.dim(1)}, device);
  const OpScope scope(device, BiasBackwardRecord(dy.dim(0), dy.dim(1)));
  if (!RunsOnCpu(device, kOp)) return;
  BiasBackwardCpu(device.threads(), dy.dim(0), dy.dim(1), dy.f32(), dbias.f32(), accumulate);
}

}  // namespace trimtab

#include "engine/ops/fp8/quantize.h"

#include <algorithm>

#include "engine/ops/cpu/fp8/quantize.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

void RaiseAmax(const Tensor& x, const Tensor& amax) {
  *amax.f32() = std::max(*amax.f32(), AmaxCpu(x.device().threads(), x.numel(), x.dtype(), x.raw()));
}

void UpdateFp8ScalesCpu(const Tensor& fp8_max, Tensor& amax, Fp8Scales& scales) {
  const int64_t rows = amax.dim(0);
  const int64_t count = amax.dim(1);
  float* history = amax.f32();
  for (int64_t s = 0; s < count; ++s) {
    float largest = 0;
    for (int64_t row = 0; row < rows; ++row) largest = std::max(largest, history[row * count + s]);
    float& scale = scales.scale.f32()[s];
    scale = Fp8Scale(largest, fp8_max.f32()[s], scale);
    scales.inverse.f32()[s * kFp8InverseStride] = 1.0f / scale;
  }
  std::copy_backward(history, history + (rows - 1) * count, history + rows * count);
  std::fill_n(history, count, 0.0f);
}

}  // namespace

OpRecord AmaxRecord(int64_t numel, DType dtype) {
  return {.kind = OpKind::kAmax, .dtype = dtype, .dims = {numel}, .bytes = numel * SizeOf(dtype)};
}

void Amax(const Tensor& x, Tensor& amax) {
  constexpr OpKind kOp = OpKind::kAmax;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "amax", amax, {1}, device);
  const OpScope scope(device, AmaxRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) return CudaKernel(device, kOp, &CudaOps::amax)(x, amax);
  if (device.kind() != DeviceKind::kCpu) return;
  RaiseAmax(x, amax);
}

OpRecord QuantizeRecord(int64_t rows, int64_t columns, DType dtype, bool with_rows,
                        bool with_transposed) {
  const int64_t copies = (with_rows ? 1 : 0) + (with_transposed ? 1 : 0);
  return {.kind = OpKind::kQuantize,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = rows * columns * (SizeOf(dtype) + copies * SizeOf(DType::kF8E4M3))};
}

OpRecord BesideFp8(OpRecord record, bool with_transposed) {
  const OpRecord alone = QuantizeRecord(record.dims[0], record.dims[1], record.dtype,
                                        /*with_rows=*/true, with_transposed);
  const int64_t read = record.dims[0] * record.dims[1] * SizeOf(record.dtype);
  record.fused = {.kind = alone.kind, .bytes = alone.bytes, .beside = alone.bytes - read};
  record.bytes += record.fused.beside;
  return record;
}

void Quantize(const Tensor& x, const Tensor& scale, Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kQuantize;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  const bool with_rows = out.rows.defined();
  const bool with_transposed = out.transposed.defined();
  TRIMTAB_ASSERT(with_rows || with_transposed, "quantize: no output is defined");
  const DType dtype = with_rows ? out.rows.dtype() : out.transposed.dtype();
  TRIMTAB_ASSERT(IsFp8(dtype), "quantize: out is {}, expected fp8", Name(dtype));
  CheckOperand(kOp, "scale", scale, {1}, device);
  if (with_rows) CheckOperand(kOp, "out.rows", out.rows, {rows, columns}, device, dtype);
  int64_t stride = rows;  // of the transposed copy
  if (with_transposed) {
    CheckMatrix(kOp, "out.transposed", out.transposed);
    if (out.transposed.dim(1) != rows) stride = PaddedFp8Rows(rows);
    CheckOperand(kOp, "out.transposed", out.transposed, {columns, stride}, device, dtype);
  }
  if (out.amax.defined()) CheckOperand(kOp, "out.amax", out.amax, {1}, device);
  const OpScope scope(device, QuantizeRecord(rows, columns, x.dtype(), with_rows, with_transposed));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::quantize)(x, scale, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  if (out.amax.defined()) RaiseAmax(x, out.amax);
  QuantizeCpu(device.threads(), rows, columns, *scale.f32(), x.dtype(), x.raw(), dtype,
              with_rows ? out.rows.raw() : nullptr,
              with_transposed ? out.transposed.raw() : nullptr, stride);
}

OpRecord Fp8ScalesRecord(int64_t scales, int64_t rows) {
  // Every amax is read and written, the largest values are read, both scales written.
  return {.kind = OpKind::kFp8Scales,
          .dims = {scales},
          .bytes = (2 * rows + 3) * scales * SizeOf(DType::kF32)};
}

void UpdateFp8Scales(const Tensor& fp8_max, Tensor& amax, Fp8Scales& scales) {
  constexpr OpKind kOp = OpKind::kFp8Scales;
  CheckMatrix(kOp, "amax", amax);
  Device& device = amax.device();
  const int64_t rows = amax.dim(0);
  const int64_t count = amax.dim(1);
  TRIMTAB_ASSERT(rows >= 1, "fp8_scales: amax has no row");
  CheckOperand(kOp, "amax", amax, {rows, count}, device);
  CheckOperand(kOp, "fp8_max", fp8_max, {count}, device);
  CheckOperand(kOp, "scale", scales.scale, {count}, device);
  CheckOperand(kOp, "inverse", scales.inverse, {count, kFp8InverseStride}, device);
  const OpScope scope(device, Fp8ScalesRecord(count, rows));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::update_fp8_scales)(fp8_max, amax, scales);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  UpdateFp8ScalesCpu(fp8_max, amax, scales);
}

}  // namespace trimtab

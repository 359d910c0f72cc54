#include "engine/ops/elementwise/elementwise.h"

#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/elementwise/elementwise.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

OpRecord Record(OpKind kind, int64_t numel, DType dtype, int64_t bytes_per_element) {
  return {.kind = kind, .dtype = dtype, .dims = {numel}, .bytes = numel * bytes_per_element};
}

}  // namespace

OpRecord AddRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kAdd, numel, dtype, 3 * SizeOf(dtype));
}
OpRecord CopyRecord(int64_t numel, DType source, DType destination) {
  return Record(OpKind::kCopy, numel, source, SizeOf(source) + SizeOf(destination));
}
OpRecord FillRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kFill, numel, dtype, SizeOf(dtype));
}
OpRecord SumRecord(int64_t numel) {
  return Record(OpKind::kSum, numel, DType::kF32, SizeOf(DType::kF32));
}
OpRecord SumSquaresRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kSumSquares, numel, dtype, SizeOf(dtype));
}

OpRecord ApplySoftCapRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kSoftCap, numel, dtype, 2 * SizeOf(dtype));
}

OpRecord ClampRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kClamp, numel, dtype, 2 * SizeOf(dtype));
}
OpRecord ClampBackwardRecord(int64_t numel, DType dtype) {
  return Record(OpKind::kClampBackward, numel, dtype, 3 * SizeOf(dtype));
}

OpRecord AddBiasRecord(int64_t rows, int64_t columns, DType dtype, bool addend) {
  const int64_t matrix = rows * columns * SizeOf(dtype);
  OpRecord record = {.kind = OpKind::kAddBias,
                     .dtype = dtype,
                     .dims = {rows, columns},
                     .bytes = 2 * matrix + columns * SizeOf(dtype)};
  if (!addend) return record;
  record.bytes += matrix;
  record.fused = {
      .kind = OpKind::kAdd, .bytes = AddRecord(rows * columns, dtype).bytes, .beside = matrix};
  return record;
}

void Add(const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kAdd;
  CheckPlainFloat(kOp, "y", y);
  Device& device = y.device();
  TRIMTAB_ASSERT(x.numel() == y.numel(), "add: x has {} elements, y {}", x.numel(), y.numel());
  CheckOperand(kOp, "x", x, x.shape(), device, y.dtype());
  const OpScope scope(device, AddRecord(y.numel(), y.dtype()));
  if (device.kind() == DeviceKind::kCuda) return CudaKernel(device, kOp, &CudaOps::add)(x, y);
  if (device.kind() != DeviceKind::kCpu) return;
  AddCpu(device.threads(), y.numel(), y.dtype(), x.raw(), y.raw());
}

void Copy(const Tensor& source, Tensor& destination) {
  constexpr OpKind kOp = OpKind::kCopy;
  CheckPlainFloat(kOp, "source", source);
  CheckPlainFloat(kOp, "destination", destination);
  Device& device = destination.device();
  TRIMTAB_ASSERT(source.numel() == destination.numel(),
                 "copy: source has {} elements, destination {}", source.numel(),
                 destination.numel());
  CheckOperand(kOp, "source", source, source.shape(), device, source.dtype());
  const OpScope scope(device, CopyRecord(source.numel(), source.dtype(), destination.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::copy)(source, destination);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ConvertCpu(device.threads(), source.numel(), source.dtype(), source.raw(), destination.dtype(),
             destination.raw());
}

void CopyColumns(const Tensor& source, int64_t from, Tensor& destination, int64_t to,
                 int64_t columns) {
  constexpr OpKind kOp = OpKind::kCopy;
  CheckMatrix(kOp, "source", source);
  CheckMatrix(kOp, "destination", destination);
  CheckPlainFloat(kOp, "source", source);
  CheckPlainFloat(kOp, "destination", destination);
  Device& device = destination.device();
  const int64_t rows = destination.dim(0);
  CheckOperand(kOp, "source", source, {rows, source.dim(1)}, device, source.dtype());
  TRIMTAB_ASSERT(from >= 0 && to >= 0 && columns >= 0 && from + columns <= source.dim(1) &&
                     to + columns <= destination.dim(1),
                 "copy: {} columns from {} of {} to {} of {}", columns, from, source.dim(1), to,
                 destination.dim(1));
  const OpScope scope(device, CopyRecord(rows * columns, source.dtype(), destination.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::copy_columns)(source, from, destination, to, columns);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CopyColumnsCpu(device.threads(), rows, columns,
                 {source.dtype(), ElementAt(source.dtype(), source.raw(), from), source.dim(1)},
                 {destination.dtype(), ElementAt(destination.dtype(), destination.raw(), to),
                  destination.dim(1)});
}

void Fill(Tensor& x, float value) {
  constexpr OpKind kOp = OpKind::kFill;
  TRIMTAB_ASSERT(x.defined(), "fill: x is undefined");
  Device& device = x.device();
  const bool zeroable = x.dtype() == DType::kU16 || x.dtype() == DType::kI8 || IsFp8(x.dtype());
  TRIMTAB_ASSERT(IsPlainFloat(x.dtype()) || (zeroable && value == 0.0f), "fill: x is {}, value {}",
                 Name(x.dtype()), value);
  const OpScope scope(device, FillRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) return CudaKernel(device, kOp, &CudaOps::fill)(x, value);
  if (device.kind() != DeviceKind::kCpu) return;
  FillCpu(device.threads(), x.numel(), value, x.dtype(), x.raw());
}

void ApplySoftCap(const SoftCap& soft_cap, Tensor& x) {
  constexpr OpKind kOp = OpKind::kSoftCap;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const OpScope scope(device, ApplySoftCapRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::apply_soft_cap)(soft_cap, x);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  SoftCapCpu(device.threads(), x.numel(), soft_cap, F32InOut(x).data());
}

void Clamp(const Tensor& x, float limit, Tensor& y) {
  constexpr OpKind kOp = OpKind::kClamp;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  const OpScope scope(device, ClampRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::clamp)(x, limit, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ClampCpu(device.threads(), x.numel(), limit, F32In(x).data(), F32Out(y).data());
}

void ClampBackward(const Tensor& x, float limit, Tensor& dx) {
  constexpr OpKind kOp = OpKind::kClampBackward;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  const OpScope scope(device, ClampBackwardRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::clamp_backward)(x, limit, dx);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ClampBackwardCpu(device.threads(), x.numel(), limit, F32In(x).data(), F32InOut(dx).data());
}

void AddBias(const Tensor& bias, Tensor& x, const Tensor& addend) {
  constexpr OpKind kOp = OpKind::kAddBias;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "bias", bias, {x.dim(1)}, device, x.dtype());
  if (addend.defined()) CheckOperand(kOp, "addend", addend, x.shape(), device, x.dtype());
  const OpScope scope(device, AddBiasRecord(x.dim(0), x.dim(1), x.dtype(), addend.defined()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::add_bias)(bias, x, addend);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AddBiasCpu(device.threads(), x.dim(0), x.dim(1), x.dtype(), bias.raw(),
             addend.defined() ? addend.raw() : nullptr, x.raw());
}

void Sum(const Tensor& x, Tensor& sum, bool accumulate) {
  constexpr OpKind kOp = OpKind::kSum;
  TRIMTAB_ASSERT(x.defined(), "sum: x is undefined");
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "sum", sum, {1}, device);
  const OpScope scope(device, SumRecord(x.numel()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::sum)(x, sum, accumulate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const double before = accumulate ? static_cast<double>(*sum.f32()) : 0.0;
  *sum.f32() = static_cast<float>(before + SumCpu(device.threads(), x.numel(), x.f32()));
}

void SumSquares(const Tensor& x, Tensor& sum) {
  constexpr OpKind kOp = OpKind::kSumSquares;
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "sum", sum, {1}, device);
  const OpScope scope(device, SumSquaresRecord(x.numel(), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::sum_squares)(x, sum);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  *sum.f32() = static_cast<float>(SumSquaresCpu(device.threads(), x.numel(), x.dtype(), x.raw()));
}

}  // namespace trimtab

#include "engine/ops/norm/norm.h"

#include "engine/ops/cpu/norm/norm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"
#include "engine/ops/fp8/quantize_beside.h"

namespace trimtab {
namespace {

// What is moved: `matrices` of [rows, columns] and `vectors` of [columns] of `dtype`, `statistics`
// of [rows] in fp32.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t matrices,
                int64_t vectors, int64_t statistics) {
  const int64_t values = matrices * rows * columns + vectors * columns;
  return {.kind = kind,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = values * SizeOf(dtype) + statistics * rows * SizeOf(DType::kF32)};
}

// The same, beside `gradients` of [columns].
OpRecord BackwardRecord(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t gradients,
                        DType gradient, int64_t statistics) {
  OpRecord record = Record(kind, rows, columns, dtype, 4, 1, statistics);
  record.bytes += gradients * columns * SizeOf(gradient);
  return record;
}

// With what is written beside dx.
OpRecord With(const Fp8Beside& copies, const OpRecord& record) {
  return copies.defined() ? BesideFp8(record, copies.out.transposed.defined()) : record;
}

}  // namespace

OpRecord LayerNormForwardRecord(int64_t rows, int64_t columns, DType dtype, bool bias) {
  return Record(OpKind::kLayerNormForward, rows, columns, dtype, 2, bias ? 2 : 1, 2);
}
OpRecord LayerNormBackwardRecord(int64_t rows, int64_t columns, DType dtype, DType gradient,
                                 bool bias) {
  return BackwardRecord(OpKind::kLayerNormBackward, rows, columns, dtype, bias ? 2 : 1, gradient,
                        2);
}
OpRecord RmsNormForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kRmsNormForward, rows, columns, dtype, 2, 1, 1);
}
OpRecord RmsNormBackwardRecord(int64_t rows, int64_t columns, DType dtype, DType gradient) {
  return BackwardRecord(OpKind::kRmsNormBackward, rows, columns, dtype, 1, gradient, 1);
}

void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const NormOptions& options, Tensor& y, Tensor& mean, Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kLayerNormForward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device, x.dtype());
  if (bias.defined()) CheckOperand(kOp, "bias", bias, {shape.columns}, device, x.dtype());
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  CheckOperand(kOp, "mean", mean, {shape.rows}, device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  const OpScope scope(device,
                      LayerNormForwardRecord(shape.rows, shape.columns, x.dtype(), bias.defined()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::layer_norm_forward)(x, weight, bias, options, y, mean,
                                                                 rstd);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  LayerNormForwardCpu(device.threads(), shape, F32In(x).data(), F32In(weight).data(),
                      F32In(bias).data(), options, F32Out(y).data(), mean.f32(), rstd.f32());
}

void LayerNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd, Tensor& dx, Tensor& dweight, Tensor& dbias,
                       bool accumulate, bool weight_plus_one, const Fp8Beside& copies) {
  constexpr OpKind kOp = OpKind::kLayerNormBackward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOperand(kOp, "weight", weight, {shape.columns}, device, x.dtype());
  CheckOperand(kOp, "mean", mean, {shape.rows}, device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  CheckPlainFloat(kOp, "dweight", dweight);
  CheckOperand(kOp, "dweight", dweight, {shape.columns}, device, dweight.dtype());
  if (dbias.defined()) CheckOperand(kOp, "dbias", dbias, {shape.columns}, device, dweight.dtype());
  if (copies.defined()) CheckBeside(kOp, copies, dx, DType::kF8E5M2);
  const OpScope scope(device,
                      With(copies, LayerNormBackwardRecord(shape.rows, shape.columns, x.dtype(),
                                                           dweight.dtype(), dbias.defined())));
  if (device.kind() == DeviceKind::kCuda) {
    const auto kernel =
        copies.defined() ? &CudaOps::layer_norm_backward_beside_fp8 : &CudaOps::layer_norm_backward;
    return CudaKernel(device, kOp, kernel)(dy, x, weight, mean, rstd, dx, dweight, dbias,
                                           accumulate, weight_plus_one, copies);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  LayerNormBackwardCpu(device.threads(), shape, F32In(dy).data(), F32In(x).data(),
                       F32In(weight).data(), mean.f32(), rstd.f32(), F32InOut(dx).data(),
                       F32InOut(dweight).data(), F32InOut(dbias).data(), accumulate,
                       weight_plus_one);
  if (copies.defined()) QuantizeBesideCpu(dx, copies);
}

void RmsNormForward(const Tensor& x, const Tensor& weight, const NormOptions& options, Tensor& y,
                    Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kRmsNormForward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device, x.dtype());
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  const OpScope scope(device, RmsNormForwardRecord(shape.rows, shape.columns, x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::rms_norm_forward)(x, weight, options, y, rstd);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RmsNormForwardCpu(device.threads(), shape, F32In(x).data(), F32In(weight).data(), options,
                    F32Out(y).data(), rstd.f32());
}

void RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                     Tensor& dx, Tensor& dweight, bool accumulate, bool weight_plus_one,
                     const Fp8Beside& copies) {
  constexpr OpKind kOp = OpKind::kRmsNormBackward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOperand(kOp, "weight", weight, {shape.columns}, device, x.dtype());
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  CheckPlainFloat(kOp, "dweight", dweight);
  CheckOperand(kOp, "dweight", dweight, {shape.columns}, device, dweight.dtype());
  if (copies.defined()) CheckBeside(kOp, copies, dx, DType::kF8E5M2);
  const OpScope scope(device, With(copies, RmsNormBackwardRecord(shape.rows, shape.columns,
                                                                 x.dtype(), dweight.dtype())));
  if (device.kind() == DeviceKind::kCuda) {
    const auto kernel =
        copies.defined() ? &CudaOps::rms_norm_backward_beside_fp8 : &CudaOps::rms_norm_backward;
    return CudaKernel(device, kOp, kernel)(dy, x, weight, rstd, dx, dweight, accumulate,
                                           weight_plus_one, copies);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RmsNormBackwardCpu(device.threads(), shape, F32In(dy).data(), F32In(x).data(),
                     F32In(weight).data(), rstd.f32(), F32InOut(dx).data(),
                     F32InOut(dweight).data(), accumulate, weight_plus_one);
  if (copies.defined()) QuantizeBesideCpu(dx, copies);
}

}  // namespace trimtab

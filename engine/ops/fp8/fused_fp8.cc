#include "engine/ops/fp8/fused_fp8.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/activation/activation.h"
#include "engine/ops/cpu/attention/attention.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/fp8/quantize.h"
#include "engine/ops/cpu/gemm/gemm.h"
#include "engine/ops/cpu/norm/norm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

// `reads` matrices of [rows, columns] of `dtype`, `writes` in each of the fp8 copies.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t reads,
                int64_t writes, const Fp8Copies& copies) {
  const int64_t stored = (copies.rows ? 1 : 0) + (copies.transposed ? 1 : 0);
  return {
      .kind = kind,
      .dtype = dtype,
      .dims = {rows, columns},
      .bytes = rows * columns * (reads * SizeOf(dtype) + writes * stored * SizeOf(DType::kF8E4M3))};
}

// A norm also reads `vectors` of [columns] and writes `statistics` of [rows].
OpRecord NormRecord(OpKind kind, int64_t rows, int64_t columns, DType dtype, bool transposed,
                    int64_t vectors, int64_t statistics) {
  OpRecord record = Record(kind, rows, columns, dtype, 1, 1, {.transposed = transposed});
  record.bytes += vectors * columns * SizeOf(dtype) + statistics * rows * SizeOf(DType::kF32);
  return record;
}

Fp8Copies CopiesOf(const Fp8Output& out) { return {out.rows.defined(), out.transposed.defined()}; }

DType TypeOf(OpKind op, const Fp8Output& out) {
  const Fp8Copies copies = CopiesOf(out);
  TRIMTAB_ASSERT(copies.rows || copies.transposed, "{}: no output is defined", Name(op));
  const DType dtype = copies.rows ? out.rows.dtype() : out.transposed.dtype();
  TRIMTAB_ASSERT(IsFp8(dtype), "{}: out is {}, expected fp8", Name(op), Name(dtype));
  return dtype;
}

void CheckOutput(OpKind op, const Tensor& scale, const Fp8Output& out, int64_t rows,
                 int64_t columns, const Device& device, DType dtype) {
  const Fp8Copies copies = CopiesOf(out);
  CheckOperand(op, "scale", scale, {1}, device);
  if (copies.rows) CheckOperand(op, "out.rows", out.rows, {rows, columns}, device, dtype);
  if (copies.transposed) {
    CheckOperand(op, "out.transposed", out.transposed, {columns, rows}, device, dtype);
  }
  if (out.amax.defined()) CheckOperand(op, "out.amax", out.amax, {1}, device);
}

void CheckNorm(OpKind op, const Tensor& x, const Tensor& weight, const Tensor& scale,
               const Fp8Output& out, const Tensor& rstd) {
  CheckMatrix(op, "x", x);
  CheckPlainFloat(op, "x", x);
  const Device& device = x.device();
  CheckOperand(op, "weight", weight, {x.dim(1)}, device, x.dtype());
  CheckOperand(op, "rstd", rstd, {x.dim(0)}, device);
  TRIMTAB_ASSERT(out.rows.defined(), "{}: out.rows is undefined", Name(op));
  CheckOutput(op, scale, out, x.dim(0), x.dim(1), device, TypeOf(op, out));
}

/// A result of [rows, columns] in fp32 on its way to fp8, of the cpu kernels. `out` must be defined
/// in rows or transposed.
void Store(const Device& device, int64_t rows, int64_t columns, const float* values,
           const Tensor& scale, Fp8Output& out) {
  const int threads = device.threads();
  if (out.amax.defined()) {
    float& amax = *out.amax.f32();
    amax = std::max(amax, AmaxCpu(threads, rows * columns, DType::kF32, values));
  }
  const Fp8Copies copies = CopiesOf(out);
  QuantizeCpu(threads, rows, columns, *scale.f32(), DType::kF32, values,
              copies.rows ? out.rows.dtype() : out.transposed.dtype(),
              copies.rows ? out.rows.raw() : nullptr,
              copies.transposed ? out.transposed.raw() : nullptr, rows);
}

/// Rounds values to what a tensor of `dtype` holds of them.
void RoundInPlace(int threads, DType dtype, int64_t n, float* values) {
  if (dtype == DType::kF32) return;
  ParallelFor(threads, n, kConvertBlock, [&](int64_t begin, int64_t end) {
    float stored[kConvertBlock];
    for (int64_t at = begin; at < end; at += kConvertBlock) {
      const int64_t count = std::min(kConvertBlock, end - at);
      RoundSpan(dtype, count, values + at, stored);
      WidenSpan(dtype, count, stored, values + at);
    }
  });
}

}  // namespace

OpRecord LayerNormForwardFp8Record(int64_t rows, int64_t columns, DType dtype, bool transposed,
                                   bool bias) {
  return NormRecord(OpKind::kLayerNormForwardFp8, rows, columns, dtype, transposed, bias ? 2 : 1,
                    2);
}
OpRecord RmsNormForwardFp8Record(int64_t rows, int64_t columns, DType dtype, bool transposed) {
  return NormRecord(OpKind::kRmsNormForwardFp8, rows, columns, dtype, transposed, 1, 1);
}
OpRecord GeluForwardFp8Record(int64_t rows, int64_t columns, DType dtype, const Fp8Copies& copies) {
  return Record(OpKind::kGeluForwardFp8, rows, columns, dtype, 1, 1, copies);
}
OpRecord GeluBackwardFp8Record(int64_t rows, int64_t columns, DType dtype, const Fp8Copies& copies,
                               bool dbias, DType gradient) {
  OpRecord record = Record(OpKind::kGeluBackwardFp8, rows, columns, dtype, 2, 1, copies);
  if (dbias) record.bytes += columns * SizeOf(gradient);
  return record;
}
OpRecord SwiGluForwardFp8Record(int64_t rows, int64_t columns, DType dtype,
                                const Fp8Copies& copies) {
  return Record(OpKind::kSwiGluForwardFp8, rows, columns, dtype, 2, 1, copies);
}
OpRecord SwiGluBackwardFp8Record(int64_t rows, int64_t columns, DType dtype,
                                 const Fp8Copies& copies) {
  return Record(OpKind::kSwiGluBackwardFp8, rows, columns, dtype, 3, 2, copies);
}
OpRecord RopeBackwardFp8Record(const AttentionShape& shape, DType dtype, const Fp8Copies& copies) {
  return Record(OpKind::kRopeBackwardFp8, shape.tokens(), shape.qkv_size(), dtype, 1, 1, copies);
}

void LayerNormForwardFp8(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const NormOptions& options, const Tensor& scale, Fp8Output& out,
                         Tensor& mean, Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kLayerNormForwardFp8;
  CheckNorm(kOp, x, weight, scale, out, rstd);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  if (bias.defined()) CheckOperand(kOp, "bias", bias, {shape.columns}, device, x.dtype());
  CheckOperand(kOp, "mean", mean, {shape.rows}, device);
  const OpScope scope(device, LayerNormForwardFp8Record(shape.rows, shape.columns, x.dtype(),
                                                        out.transposed.defined(), bias.defined()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::layer_norm_forward_fp8)(x, weight, bias, options,
                                                                     scale, out, mean, rstd);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats y(x.numel());
  LayerNormForwardCpu(device.threads(), shape, F32In(x).data(), F32In(weight).data(),
                      F32In(bias).data(), options, y.data(), mean.f32(), rstd.f32());
  Store(device, shape.rows, shape.columns, y.data(), scale, out);
}

void RmsNormForwardFp8(const Tensor& x, const Tensor& weight, const NormOptions& options,
                       const Tensor& scale, Fp8Output& out, Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kRmsNormForwardFp8;
  CheckNorm(kOp, x, weight, scale, out, rstd);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  const OpScope scope(device, RmsNormForwardFp8Record(shape.rows, shape.columns, x.dtype(),
                                                      out.transposed.defined()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::rms_norm_forward_fp8)(x, weight, options, scale, out,
                                                                   rstd);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats y(x.numel());
  RmsNormForwardCpu(device.threads(), shape, F32In(x).data(), F32In(weight).data(), options,
                    y.data(), rstd.f32());
  Store(device, shape.rows, shape.columns, y.data(), scale, out);
}

void GeluForwardFp8(const Tensor& x, const Tensor& scale, Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kGeluForwardFp8;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOutput(kOp, scale, out, x.dim(0), x.dim(1), device, TypeOf(kOp, out));
  const OpScope scope(device, GeluForwardFp8Record(x.dim(0), x.dim(1), x.dtype(), CopiesOf(out)));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gelu_forward_fp8)(x, scale, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats y(x.numel());
  ActivationForwardCpu(device.threads(), ActivationFunction::kGelu, x.numel(), F32In(x).data(),
                       y.data());
  Store(device, x.dim(0), x.dim(1), y.data(), scale, out);
}

void GeluBackwardFp8(const Tensor& x, const Tensor& dy, const Tensor& scale, Fp8Output& out,
                     Tensor& dbias, bool accumulate) {
  constexpr OpKind kOp = OpKind::kGeluBackwardFp8;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOutput(kOp, scale, out, rows, columns, device, DType::kF8E5M2);
  const bool sums = dbias.defined();
  if (sums) {
    CheckPlainFloat(kOp, "dbias", dbias);
    CheckOperand(kOp, "dbias", dbias, {columns}, device, dbias.dtype());
  }
  const OpScope scope(device, GeluBackwardFp8Record(rows, columns, x.dtype(), CopiesOf(out), sums,
                                                    sums ? dbias.dtype() : DType::kF32));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gelu_backward_fp8)(x, dy, scale, out, dbias,
                                                                accumulate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats dx(x.numel());
  ActivationBackwardCpu(device.threads(), ActivationFunction::kGelu, x.numel(), F32In(x).data(),
                        F32In(dy).data(), dx.data());
  if (sums) {
    BiasBackwardCpu(device.threads(), rows, columns, dx.data(), F32InOut(dbias).data(), accumulate);
  }
  Store(device, rows, columns, dx.data(), scale, out);
}

void SwiGluForwardFp8(const Tensor& gate_up, const Tensor& scale, Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kSwiGluForwardFp8;
  CheckMatrix(kOp, "gate_up", gate_up);
  CheckPlainFloat(kOp, "gate_up", gate_up);
  Device& device = gate_up.device();
  const int64_t rows = gate_up.dim(0);
  const int64_t columns = gate_up.dim(1) / 2;
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, gate_up.dtype());
  CheckOutput(kOp, scale, out, rows, columns, device, DType::kF8E4M3);
  const OpScope scope(device,
                      SwiGluForwardFp8Record(rows, columns, gate_up.dtype(), CopiesOf(out)));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::swiglu_forward_fp8)(gate_up, scale, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats y(rows * columns);
  GatedActivationForwardCpu(device.threads(), ActivationFunction::kSilu, rows, columns,
                            F32In(gate_up).data(), y.data());
  Store(device, rows, columns, y.data(), scale, out);
}

void SwiGluBackwardFp8(const Tensor& gate_up, const Tensor& dy, const Tensor& scale,
                       Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kSwiGluBackwardFp8;
  CheckMatrix(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dy", dy);
  Device& device = dy.device();
  const int64_t rows = dy.dim(0);
  const int64_t columns = dy.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, dy.dtype());
  CheckOutput(kOp, scale, out, rows, 2 * columns, device, DType::kF8E5M2);
  const OpScope scope(device, SwiGluBackwardFp8Record(rows, columns, dy.dtype(), CopiesOf(out)));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::swiglu_backward_fp8)(gate_up, dy, scale, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats dgate_up(gate_up.numel());
  GatedActivationBackwardCpu(device.threads(), ActivationFunction::kSilu, rows, columns,
                             F32In(gate_up).data(), F32In(dy).data(), dgate_up.data());
  Store(device, rows, 2 * columns, dgate_up.data(), scale, out);
}

void RopeBackwardFp8(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                     const Tensor& scale, Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kRopeBackwardFp8;
  CheckRotary(kOp, shape, rotary, kMaxRopeFp8Dims);
  CheckPlainFloat(kOp, "dqkv", dqkv);
  Device& device = dqkv.device();
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, dqkv.dtype());
  CheckOutput(kOp, scale, out, dqkv.dim(0), dqkv.dim(1), device, DType::kF8E5M2);
  const OpScope scope(device, RopeBackwardFp8Record(shape, dqkv.dtype(), CopiesOf(out)));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::rope_backward_fp8)(shape, rotary, dqkv, scale, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HostFloats values(dqkv.numel());
  std::copy_n(F32In(dqkv).data(), dqkv.numel(), values.data());
  RopeCpu(device.threads(), shape, rotary, /*inverse=*/true, values.data());
  RoundInPlace(device.threads(), dqkv.dtype(), dqkv.numel(), values.data());
  Store(device, dqkv.dim(0), dqkv.dim(1), values.data(), scale, out);
}

}  // namespace trimtab

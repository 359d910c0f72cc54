#include "engine/ops/attention/attention_sink.h"

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/attention/attention_sink.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

void CheckShared(OpKind op, const AttentionShape& s, const Tensor& sinks, const Tensor& out,
                 const Tensor& log_sum_exp) {
  CheckAttention(op, s);
  CheckPlainFloat(op, "out", out);
  const Device& device = out.device();
  CheckOperand(op, "sinks", sinks, {s.heads}, device, out.dtype());
  CheckOperand(op, "out", out, OutShape(s), device, out.dtype());
  CheckOperand(op, "log_sum_exp", log_sum_exp, LogSumExpShape(s), device);
}

}  // namespace

OpRecord AttentionSinkRecord(const AttentionShape& s, DType dtype) {
  return {.kind = OpKind::kAttentionSink,
          .dtype = dtype,
          .dims = {s.tokens(), s.out_size()},
          .bytes = (2 * OutShape(s).numel() + s.heads) * SizeOf(dtype) +
                   2 * LogSumExpShape(s).numel() * SizeOf(DType::kF32)};
}

OpRecord AttentionSinkBackwardRecord(const AttentionShape& s, DType dtype, DType gradient) {
  return {.kind = OpKind::kAttentionSinkBackward,
          .dtype = dtype,
          .dims = {s.tokens(), s.out_size()},
          .bytes = (2 * OutShape(s).numel() + s.heads) * SizeOf(dtype) +
                   LogSumExpShape(s).numel() * SizeOf(DType::kF32) + s.heads * SizeOf(gradient)};
}

void AttentionSink(const AttentionShape& shape, const Tensor& sinks, Tensor& out,
                   Tensor& log_sum_exp) {
  constexpr OpKind kOp = OpKind::kAttentionSink;
  CheckShared(kOp, shape, sinks, out, log_sum_exp);
  Device& device = out.device();
  const OpScope scope(device, AttentionSinkRecord(shape, out.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_sink)(shape, sinks, out, log_sum_exp);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionSinkCpu(device.threads(), shape, F32In(sinks).data(), F32InOut(out).data(),
                   log_sum_exp.f32());
}

void AttentionSinkBackward(const AttentionShape& shape, const Tensor& sinks, const Tensor& out,
                           const Tensor& log_sum_exp, const Tensor& dout, Tensor& dsinks,
                           bool accumulate) {
  constexpr OpKind kOp = OpKind::kAttentionSinkBackward;
  CheckShared(kOp, shape, sinks, out, log_sum_exp);
  Device& device = out.device();
  CheckOperand(kOp, "dout", dout, OutShape(shape), device, out.dtype());
  CheckPlainFloat(kOp, "dsinks", dsinks);
  CheckOperand(kOp, "dsinks", dsinks, {shape.heads}, device, dsinks.dtype());
  const OpScope scope(device, AttentionSinkBackwardRecord(shape, out.dtype(), dsinks.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_sink_backward)(
        shape, sinks, out, log_sum_exp, dout, dsinks, accumulate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionSinkBackwardCpu(device.threads(), shape, F32In(sinks).data(), F32In(out).data(),
                           log_sum_exp.f32(), F32In(dout).data(),
                           F32Out(dsinks, /*read=*/accumulate).data(), accumulate);
}

}  // namespace trimtab

#include "engine/ops/attention/attention.h"

#include <algorithm>

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/attention/attention.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

// Each visible score is multiplied or added up `columns` times; `values` of `dtype` beside the
// log-sum-exp.
OpRecord Record(OpKind kind, const AttentionShape& s, int64_t columns, int64_t values,
                DType dtype) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {s.rows.batch * s.heads, s.rows.sequence, s.head_size, s.kv_heads},
          .flops = columns * 2 * s.rows.batch * s.heads * s.visible_scores(),
          .bytes = values * SizeOf(dtype) + LogSumExpShape(s).numel() * SizeOf(DType::kF32)};
}

}  // namespace

int64_t AttentionShape::visible_scores() const {
  return Visible(CausalScores(rows.sequence, scores.window));
}

OpRecord AttentionForwardRecord(const AttentionShape& s, DType dtype) {
  const int64_t values = QkvShape(s).numel() + OutShape(s).numel();
  return Record(OpKind::kAttentionForward, s, ForwardColumns(s), values, dtype);
}

OpRecord AttentionBackwardRecord(const AttentionShape& s, DType dtype) {
  const int64_t values = 2 * QkvShape(s).numel() + 2 * OutShape(s).numel();
  return Record(OpKind::kAttentionBackward, s, BackwardColumns(s), values, dtype);
}

int64_t AttentionForwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor) {
  if (executor.kind == DeviceKind::kCuda) return 0;
  return executor.threads * AttentionForwardScratchCpu(shape) * SizeOf(DType::kF32);
}

int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor) {
  const int64_t floats = executor.kind == DeviceKind::kCuda
                             ? QueryShape(shape).numel() + LogSumExpShape(shape).numel()
                             : executor.threads * AttentionBackwardScratchCpu(shape);
  return floats * SizeOf(DType::kF32);
}

void AttentionForward(const AttentionShape& shape, const Tensor& qkv, Tensor& out,
                      Tensor& log_sum_exp) {
  constexpr OpKind kOp = OpKind::kAttentionForward;
  CheckAttention(kOp, shape);
  Device& device = out.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  const DType dtype = qkv.dtype();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, dtype);
  CheckOperand(kOp, "out", out, OutShape(shape), device, dtype);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  const OpScope scope(device, AttentionForwardRecord(shape, dtype));
  const Tensor scratch =
      AttentionScratch(device, AttentionForwardWorkspaceBytes(shape, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_forward)(shape, qkv, out, log_sum_exp);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionForwardCpu(device.threads(), shape, F32In(qkv).data(), F32Out(out).data(),
                      log_sum_exp.f32(), scratch.f32());
}

void AttentionBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv) {
  constexpr OpKind kOp = OpKind::kAttentionBackward;
  CheckAttention(kOp, shape);
  Device& device = dqkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  const DType dtype = qkv.dtype();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, dtype);
  CheckOperand(kOp, "out", out, OutShape(shape), device, dtype);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  CheckOperand(kOp, "dout", dout, OutShape(shape), device, dtype);
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, dtype);
  const OpScope scope(device, AttentionBackwardRecord(shape, dtype));
  const Tensor scratch =
      AttentionScratch(device, AttentionBackwardWorkspaceBytes(shape, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_backward)(shape, qkv, out, log_sum_exp, dout,
                                                                 dqkv, scratch);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionBackwardCpu(device.threads(), shape, F32In(qkv).data(), F32In(out).data(),
                       log_sum_exp.f32(), F32In(dout).data(), F32Out(dqkv).data(), scratch.f32());
}

OpRecord RopeRecord(const AttentionShape& s, DType dtype) {
  const int64_t values = 2 * s.tokens() * (s.heads + s.kv_heads) * s.head_size;
  return {.kind = OpKind::kRope,
          .dtype = dtype,
          .dims = {s.tokens(), (s.heads + s.kv_heads) * s.head_size},
          .bytes = values * SizeOf(dtype)};
}

void Rope(const AttentionShape& shape, const Rotary& rotary, bool inverse, Tensor& qkv) {
  constexpr OpKind kOp = OpKind::kRope;
  CheckRotary(kOp, shape, rotary, kMaxRotarySize);
  Device& device = qkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, RopeRecord(shape, qkv.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::rope)(shape, rotary, inverse, qkv);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RopeCpu(device.threads(), shape, rotary, inverse, F32InOut(qkv).data());
}

}  // namespace trimtab

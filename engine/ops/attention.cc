#include "engine/ops/attention.h"

#include "engine/ops/attention_cpu.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

void CheckAttention(OpKind op, const AttentionShape& s) {
  TRIMTAB_ASSERT(s.batch >= 1 && s.sequence >= 1 && s.head_size >= 1 && s.kv_heads >= 1,
                 "{}: batch {}, sequence {}, head size {}, kv heads {}, expected at least 1 each",
                 Name(op), s.batch, s.sequence, s.head_size, s.kv_heads);
  TRIMTAB_ASSERT(s.heads >= s.kv_heads && s.heads % s.kv_heads == 0,
                 "{}: {} query heads are not a multiple of {} key/value heads", Name(op), s.heads,
                 s.kv_heads);
}

Shape QkvShape(const AttentionShape& s) { return {s.tokens(), s.qkv_size()}; }
Shape OutShape(const AttentionShape& s) { return {s.tokens(), s.heads * s.head_size}; }
Shape LogSumExpShape(const AttentionShape& s) { return {s.batch, s.heads, s.sequence}; }

// `products` matrix products over the causal half of the T x T scores.
OpRecord Record(OpKind kind, const AttentionShape& s, int64_t products, int64_t values) {
  return {.kind = kind,
          .dims = {s.batch * s.heads, s.sequence, s.head_size, s.kv_heads},
          .flops = products * s.batch * s.heads * s.head_size * s.sequence * (s.sequence + 1),
          .bytes = values * SizeOf(DType::kF32)};
}

Tensor Workspace(Device& device, int64_t bytes) {
  return Tensor::Empty(device, {bytes / SizeOf(DType::kF32)}, DType::kF32, MemoryTag::kWorkspace);
}

}  // namespace

OpRecord AttentionForwardRecord(const AttentionShape& s) {
  const int64_t values = QkvShape(s).numel() + OutShape(s).numel() + LogSumExpShape(s).numel();
  return Record(OpKind::kAttentionForward, s, 2, values);
}

OpRecord AttentionBackwardRecord(const AttentionShape& s) {
  const int64_t values =
      2 * QkvShape(s).numel() + 2 * OutShape(s).numel() + LogSumExpShape(s).numel();
  return Record(OpKind::kAttentionBackward, s, 5, values);
}

int64_t AttentionForwardWorkspaceBytes(const AttentionShape& shape, int threads) {
  return threads * AttentionForwardScratchCpu(shape) * SizeOf(DType::kF32);
}

int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, int threads) {
  return threads * AttentionBackwardScratchCpu(shape) * SizeOf(DType::kF32);
}

void AttentionForward(const AttentionShape& shape, const Tensor& qkv, Tensor& out,
                      Tensor& log_sum_exp) {
  constexpr OpKind kOp = OpKind::kAttentionForward;
  CheckAttention(kOp, shape);
  Device& device = out.device();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device);
  CheckOperand(kOp, "out", out, OutShape(shape), device);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  const OpScope scope(device, AttentionForwardRecord(shape));
  const Tensor scratch = Workspace(device, AttentionForwardWorkspaceBytes(shape, device.threads()));
  if (!RunsOnCpu(device, kOp)) return;
  AttentionForwardCpu(device.threads(), shape, qkv.f32(), out.f32(), log_sum_exp.f32(),
                      scratch.f32());
}

void AttentionBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv) {
  constexpr OpKind kOp = OpKind::kAttentionBackward;
  CheckAttention(kOp, shape);
  Device& device = dqkv.device();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device);
  CheckOperand(kOp, "out", out, OutShape(shape), device);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  CheckOperand(kOp, "dout", dout, OutShape(shape), device);
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device);
  const OpScope scope(device, AttentionBackwardRecord(shape));
  const Tensor scratch =
      Workspace(device, AttentionBackwardWorkspaceBytes(shape, device.threads()));
  if (!RunsOnCpu(device, kOp)) return;
  AttentionBackwardCpu(device.threads(), shape, qkv.f32(), out.f32(), log_sum_exp.f32(), dout.f32(),
                       dqkv.f32(), scratch.f32());
}

OpRecord RopeRecord(const AttentionShape& s) {
  const int64_t values = 2 * s.tokens() * (s.heads + s.kv_heads) * s.head_size;
  return {.kind = OpKind::kRope,
          .dims = {s.tokens(), (s.heads + s.kv_heads) * s.head_size},
          .bytes = values * SizeOf(DType::kF32)};
}

void Rope(const AttentionShape& shape, double theta, bool inverse, Tensor& qkv) {
  constexpr OpKind kOp = OpKind::kRope;
  CheckAttention(kOp, shape);
  TRIMTAB_ASSERT(shape.head_size % 2 == 0 && shape.head_size <= kMaxRopeHeadSize,
                 "rope: head size {}, expected an even number of at most {}", shape.head_size,
                 kMaxRopeHeadSize);
  Device& device = qkv.device();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device);
  const OpScope scope(device, RopeRecord(shape));
  if (!RunsOnCpu(device, kOp)) return;
  RopeCpu(device.threads(), shape, theta, inverse, qkv.f32());
}

}  // namespace trimtab

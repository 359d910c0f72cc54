#include "engine/ops/attention/attention_block.h"

#include <algorithm>

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/attention/attention_block.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

void CheckBlock(OpKind op, const AttentionShape& s, const RowLayout& keys,
                const AttentionBlock& block) {
  CheckAttention(op, s);
  const int64_t last = s.rows.sequence - block.size;
  TRIMTAB_ASSERT(block.size >= 1 && block.query >= 0 && block.query <= last && block.key >= 0 &&
                     block.key <= last && AheadOf(s.rows, keys, block) >= 0,
                 "{}: {} queries from {}, {} ahead, and keys from {} in sequences of {}", Name(op),
                 block.size, block.query, AheadOf(s.rows, keys, block), block.key, s.rows.sequence);
}

/// Returns the scores of one head: query i sees i + ahead + 1 keys, or all.
int64_t ScoresOf(const AttentionShape& s, const RowLayout& keys, const AttentionBlock& block) {
  const int64_t ahead = AheadOf(s.rows, keys, block);
  const int64_t partial = std::max<int64_t>(0, block.size - 1 - ahead);  // queries
  return s.Visible(block.size * block.size - partial * (partial + 1) / 2);
}

// Each of `scores` of a head is multiplied or added up `columns` times; `token_bytes` moved for
// each of the block's tokens.
OpRecord Record(OpKind kind, const AttentionShape& s, const AttentionBlock& block, DType dtype,
                int64_t scores, int64_t columns, int64_t token_bytes) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {s.rows.batch * s.heads, block.size, s.head_size, s.kv_heads},
          .flops = columns * 2 * s.rows.batch * s.heads * scores,
          .bytes = s.rows.batch * block.size * token_bytes};
}

}  // namespace

int64_t AheadOf(const RowLayout& queries, const RowLayout& keys, const AttentionBlock& block) {
  return queries.offset(block.query) - keys.offset(block.key);
}

Shape KeyValueShape(const AttentionShape& s) { return {s.tokens(), s.kv_size()}; }

OpRecord AttentionBlockForwardRecord(const AttentionShape& s, const RowLayout& keys,
                                     const AttentionBlock& block, DType dtype) {
  // Sums are read and written.
  const int64_t bytes =
      s.qkv_size() * SizeOf(dtype) + 2 * (s.out_size() + s.heads) * SizeOf(DType::kF32);
  return Record(OpKind::kAttentionForward, s, block, dtype, ScoresOf(s, keys, block),
                ForwardColumns(s), bytes);
}

OpRecord AttentionBlockBackwardRecord(const AttentionShape& s, const RowLayout& keys,
                                      const AttentionBlock& block, DType dtype) {
  // qkv, out and dout; dkv and dquery are read and written.
  const int64_t values = s.qkv_size() + 2 * s.out_size() + 2 * s.kv_size();
  const int64_t bytes =
      values * SizeOf(dtype) + (2 * s.query_size() + s.heads) * SizeOf(DType::kF32);
  return Record(OpKind::kAttentionBackward, s, block, dtype, ScoresOf(s, keys, block),
                BackwardColumns(s), bytes);
}

int64_t AttentionBlockForwardWorkspaceBytes(const AttentionShape& shape,
                                            const AttentionBlock& block, const Executor& executor) {
  if (executor.kind == DeviceKind::kCuda) return 0;
  return executor.threads * AttentionBlockForwardScratchCpu(shape, block) * SizeOf(DType::kF32);
}

int64_t AttentionBlockBackwardWorkspaceBytes(const AttentionShape& shape,
                                             const AttentionBlock& block,
                                             const Executor& executor) {
  const int64_t floats = executor.kind == DeviceKind::kCuda
                             ? LogSumExpShape(shape).numel()
                             : executor.threads * AttentionBlockBackwardScratchCpu(block);
  return floats * SizeOf(DType::kF32);
}

void AttentionBlockForward(const AttentionShape& shape, const RowLayout& keys,
                           const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                           Tensor& out, Tensor& log_sum_exp) {
  constexpr OpKind kOp = OpKind::kAttentionForward;
  CheckBlock(kOp, shape, keys, block);
  Device& device = out.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  const DType dtype = qkv.dtype();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, dtype);
  CheckOperand(kOp, "kv", kv, KeyValueShape(shape), device, dtype);
  CheckOperand(kOp, "out", out, OutShape(shape), device);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  const OpScope scope(device, AttentionBlockForwardRecord(shape, keys, block, dtype));
  const Tensor scratch = AttentionScratch(
      device, AttentionBlockForwardWorkspaceBytes(shape, block, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_block_forward)(shape, keys, block, qkv, kv,
                                                                      out, log_sum_exp);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionBlockForwardCpu(device.threads(), shape, keys, block, F32In(qkv).data(),
                           F32In(kv).data(), out.f32(), log_sum_exp.f32(), scratch.f32());
}

void AttentionBlockBackward(const AttentionShape& shape, const RowLayout& keys,
                            const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                            const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                            Tensor& dquery, Tensor& dkv) {
  constexpr OpKind kOp = OpKind::kAttentionBackward;
  CheckBlock(kOp, shape, keys, block);
  Device& device = dkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  const DType dtype = qkv.dtype();
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, dtype);
  CheckOperand(kOp, "kv", kv, KeyValueShape(shape), device, dtype);
  CheckOperand(kOp, "out", out, OutShape(shape), device, dtype);
  CheckOperand(kOp, "log_sum_exp", log_sum_exp, LogSumExpShape(shape), device);
  CheckOperand(kOp, "dout", dout, OutShape(shape), device, dtype);
  CheckOperand(kOp, "dquery", dquery, QueryShape(shape), device);
  CheckOperand(kOp, "dkv", dkv, KeyValueShape(shape), device, dtype);
  const OpScope scope(device, AttentionBlockBackwardRecord(shape, keys, block, dtype));
  const Tensor scratch = AttentionScratch(
      device, AttentionBlockBackwardWorkspaceBytes(shape, block, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::attention_block_backward)(
        shape, keys, block, qkv, kv, out, log_sum_exp, dout, dquery, dkv, scratch);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  AttentionBlockBackwardCpu(device.threads(), shape, keys, block, F32In(qkv).data(),
                            F32In(kv).data(), F32In(out).data(), log_sum_exp.f32(),
                            F32In(dout).data(), dquery.f32(), F32InOut(dkv).data(), scratch.f32());
}

}  // namespace trimtab

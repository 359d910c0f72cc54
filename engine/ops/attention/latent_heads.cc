#include "engine/ops/attention/latent_heads.h"

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/attention/latent_heads.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

void CheckShared(OpKind op, const AttentionShape& s, const Rotary& rotary) {
  CheckAttention(op, s);
  TRIMTAB_ASSERT(s.heads == s.kv_heads, "{}: {} query heads and {} of keys, expected as many",
                 Name(op), s.heads, s.kv_heads);
  TRIMTAB_ASSERT(rotary.dims >= 2 && rotary.dims % 2 == 0 && rotary.dims < s.head_size &&
                     rotary.dims <= kMaxRotarySize,
                 "{}: {} dims of a head of {} turn, expected an even number of fewer", Name(op),
                 rotary.dims, s.head_size);
}

OpRecord Record(OpKind kind, const AttentionShape& s, int64_t rotary_size, DType dtype) {
  const int64_t joined =
      s.query_size() + JoinedKeyValueShape(s, rotary_size)[1] + rotary_size;  // of a token
  return {.kind = kind,
          .dtype = dtype,
          .dims = {s.tokens(), s.qkv_size()},
          .bytes = s.tokens() * (joined + s.qkv_size()) * SizeOf(dtype)};
}

}  // namespace

OpRecord JoinHeadsRecord(const AttentionShape& s, int64_t rotary_size, DType dtype) {
  return Record(OpKind::kJoinHeads, s, rotary_size, dtype);
}
OpRecord JoinHeadsBackwardRecord(const AttentionShape& s, int64_t rotary_size, DType dtype) {
  return Record(OpKind::kJoinHeadsBackward, s, rotary_size, dtype);
}

Shape JoinedKeyValueShape(const AttentionShape& s, int64_t rotary_size) {
  return {s.tokens(), s.heads * (s.head_size - rotary_size + s.value_size())};
}

void JoinHeads(const AttentionShape& shape, const Rotary& rotary, const Tensor& query,
               const Tensor& key_value, const Tensor& key_rotary, Tensor& qkv) {
  constexpr OpKind kOp = OpKind::kJoinHeads;
  CheckShared(kOp, shape, rotary);
  Device& device = qkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  const DType dtype = qkv.dtype();
  CheckOperand(kOp, "query", query, QueryShape(shape), device, dtype);
  CheckOperand(kOp, "key_value", key_value, JoinedKeyValueShape(shape, rotary.dims), device, dtype);
  CheckOperand(kOp, "key_rotary", key_rotary, {shape.tokens(), rotary.dims}, device, dtype);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, dtype);
  const OpScope scope(device, JoinHeadsRecord(shape, rotary.dims, dtype));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::join_heads)(shape, rotary, query, key_value,
                                                         key_rotary, qkv);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  JoinHeadsCpu(device.threads(), shape, rotary, F32In(query).data(), F32In(key_value).data(),
               F32In(key_rotary).data(), F32Out(qkv).data());
}

void JoinHeadsBackward(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                       Tensor& dquery, Tensor& dkey_value, Tensor& dkey_rotary) {
  constexpr OpKind kOp = OpKind::kJoinHeadsBackward;
  CheckShared(kOp, shape, rotary);
  Device& device = dqkv.device();
  CheckPlainFloat(kOp, "dqkv", dqkv);
  const DType dtype = dqkv.dtype();
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, dtype);
  CheckOperand(kOp, "dquery", dquery, QueryShape(shape), device, dtype);
  CheckOperand(kOp, "dkey_value", dkey_value, JoinedKeyValueShape(shape, rotary.dims), device,
               dtype);
  CheckOperand(kOp, "dkey_rotary", dkey_rotary, {shape.tokens(), rotary.dims}, device, dtype);
  const OpScope scope(device, JoinHeadsBackwardRecord(shape, rotary.dims, dtype));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::join_heads_backward)(shape, rotary, dqkv, dquery,
                                                                  dkey_value, dkey_rotary);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  JoinHeadsBackwardCpu(device.threads(), shape, rotary, F32In(dqkv).data(), F32Out(dquery).data(),
                       F32Out(dkey_value).data(), F32Out(dkey_rotary).data());
}

}  // namespace trimtab

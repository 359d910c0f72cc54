#include "engine/ops/norm/head_norm.h"

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/norm/head_norm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

int64_t NormedColumns(const AttentionShape& s) { return (s.heads + s.kv_heads) * s.head_size; }
Shape RstdShape(const AttentionShape& s) { return {s.tokens(), s.heads + s.kv_heads}; }

void CheckShared(OpKind op, const AttentionShape& s, const Tensor& qkv, const Tensor& query_weight,
                 const Tensor& key_weight, const Tensor& rstd) {
  CheckAttention(op, s);
  TRIMTAB_ASSERT(s.value_size() == s.head_size, "{}: heads of {}, values of {}", Name(op),
                 s.head_size, s.value_size());
  CheckPlainFloat(op, "qkv", qkv);
  const Device& device = qkv.device();
  CheckOperand(op, "qkv", qkv, QkvShape(s), device, qkv.dtype());
  CheckOperand(op, "query_weight", query_weight, {s.head_size}, device, qkv.dtype());
  CheckOperand(op, "key_weight", key_weight, {s.head_size}, device, qkv.dtype());
  CheckOperand(op, "rstd", rstd, RstdShape(s), device);
}

}  // namespace

OpRecord HeadNormForwardRecord(const AttentionShape& s, DType dtype) {
  const int64_t values = 2 * QkvShape(s).numel() + 2 * s.head_size;
  return {.kind = OpKind::kHeadNormForward,
          .dtype = dtype,
          .dims = {s.tokens(), NormedColumns(s)},
          .bytes = values * SizeOf(dtype) + RstdShape(s).numel() * SizeOf(DType::kF32)};
}

OpRecord HeadNormBackwardRecord(const AttentionShape& s, DType dtype, DType gradient) {
  const int64_t values = 3 * s.tokens() * NormedColumns(s) + 2 * s.head_size;
  return {.kind = OpKind::kHeadNormBackward,
          .dtype = dtype,
          .dims = {s.tokens(), NormedColumns(s)},
          .bytes = values * SizeOf(dtype) + RstdShape(s).numel() * SizeOf(DType::kF32) +
                   2 * s.head_size * SizeOf(gradient)};
}

void HeadNormForward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                     const Tensor& key_weight, const NormOptions& options, Tensor& out,
                     Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kHeadNormForward;
  CheckShared(kOp, shape, qkv, query_weight, key_weight, rstd);
  Device& device = qkv.device();
  CheckOperand(kOp, "out", out, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, HeadNormForwardRecord(shape, qkv.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::head_norm_forward)(shape, qkv, query_weight,
                                                                key_weight, options, out, rstd);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HeadNormForwardCpu(device.threads(), shape, F32In(qkv).data(), F32In(query_weight).data(),
                     F32In(key_weight).data(), options, F32Out(out).data(), rstd.f32());
}

void HeadNormBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                      const Tensor& key_weight, const Tensor& rstd, bool weight_plus_one,
                      Tensor& dqkv, Tensor& dweights) {
  constexpr OpKind kOp = OpKind::kHeadNormBackward;
  CheckShared(kOp, shape, qkv, query_weight, key_weight, rstd);
  Device& device = qkv.device();
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, qkv.dtype());
  CheckPlainFloat(kOp, "dweights", dweights);
  CheckOperand(kOp, "dweights", dweights, {2, shape.head_size}, device, dweights.dtype());
  const OpScope scope(device, HeadNormBackwardRecord(shape, qkv.dtype(), dweights.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::head_norm_backward)(
        shape, qkv, query_weight, key_weight, rstd, weight_plus_one, dqkv, dweights);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  HeadNormBackwardCpu(device.threads(), shape, F32In(qkv).data(), F32In(query_weight).data(),
                      F32In(key_weight).data(), rstd.f32(), weight_plus_one, F32InOut(dqkv).data(),
                      F32Out(dweights).data());
}

}  // namespace trimtab

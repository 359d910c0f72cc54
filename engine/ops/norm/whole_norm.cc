#include "engine/ops/norm/whole_norm.h"

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/norm/whole_norm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

int64_t NormedColumns(const AttentionShape& s) { return (s.heads + s.kv_heads) * s.head_size; }
Shape SumsShape(const AttentionShape& s) { return {s.tokens(), 2}; }

/// The record of an op that goes over `values` elements of qkv's type and over `sums` sums.
OpRecord RecordOf(OpKind kind, const AttentionShape& s, DType dtype, int64_t values, int64_t sums) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {s.tokens(), NormedColumns(s)},
          .bytes = values * SizeOf(dtype) + sums * SumsShape(s).numel() * SizeOf(DType::kF32)};
}

void CheckQkv(OpKind op, const AttentionShape& s, const Tensor& qkv, const Tensor& sums) {
  CheckAttention(op, s);
  TRIMTAB_ASSERT(s.value_size() == s.head_size, "{}: heads of {}, values of {}", Name(op),
                 s.head_size, s.value_size());
  CheckPlainFloat(op, "qkv", qkv);
  CheckOperand(op, "qkv", qkv, QkvShape(s), qkv.device(), qkv.dtype());
  CheckOperand(op, "sums", sums, SumsShape(s), qkv.device());
}

void CheckNorms(OpKind op, const AttentionShape& s, const Tensor& qkv, const WholeNorms& norms) {
  const Device& device = qkv.device();
  CheckOperand(op, "query_weight", norms.query_weight, {s.heads * s.head_size}, device,
               qkv.dtype());
  CheckOperand(op, "key_weight", norms.key_weight, {s.kv_heads * s.head_size}, device, qkv.dtype());
  TRIMTAB_ASSERT(
      norms.query_count >= s.heads * s.head_size && norms.key_count >= s.kv_heads * s.head_size,
      "{}: sums over {} and {} elements, expected those of this rank at least", Name(op),
      norms.query_count, norms.key_count);
}

/// The parts on the cpu, with weights in fp32.
struct WidenedNorms {
  F32In query;
  F32In key;
  WholeNormParts parts;

  WidenedNorms(const AttentionShape& s, const WholeNorms& norms)
      : query(norms.query_weight), key(norms.key_weight) {
    const int64_t queries = s.heads * s.head_size;
    parts[0] = {0, queries, norms.query_count, query.data()};
    parts[1] = {queries, s.kv_heads * s.head_size, norms.key_count, key.data()};
  }
};

}  // namespace

OpRecord WholeNormSquaresRecord(const AttentionShape& s, DType dtype) {
  return RecordOf(OpKind::kHeadNormForward, s, dtype, s.tokens() * NormedColumns(s), 1);
}

OpRecord WholeNormForwardRecord(const AttentionShape& s, DType dtype) {
  return RecordOf(OpKind::kHeadNormForward, s, dtype, 2 * QkvShape(s).numel() + NormedColumns(s),
                  1);
}

OpRecord WholeNormSlopesRecord(const AttentionShape& s, DType dtype, DType gradient) {
  OpRecord record =
      RecordOf(OpKind::kHeadNormBackward, s, dtype, (2 * s.tokens() + 1) * NormedColumns(s), 2);
  record.bytes += NormedColumns(s) * SizeOf(gradient);
  return record;
}

OpRecord WholeNormBackwardRecord(const AttentionShape& s, DType dtype) {
  return RecordOf(OpKind::kHeadNormBackward, s, dtype, (3 * s.tokens() + 1) * NormedColumns(s), 2);
}

void WholeNormSquares(const AttentionShape& shape, const Tensor& qkv, Tensor& squares) {
  constexpr OpKind kOp = OpKind::kHeadNormForward;
  CheckQkv(kOp, shape, qkv, squares);
  Device& device = qkv.device();
  const OpScope scope(device, WholeNormSquaresRecord(shape, qkv.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::whole_norm_squares)(shape, qkv, squares);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  WholeNormSquaresCpu(device.threads(), shape, F32In(qkv).data(), squares.f32());
}

void WholeNormForward(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                      const Tensor& squares, Tensor& out) {
  constexpr OpKind kOp = OpKind::kHeadNormForward;
  CheckQkv(kOp, shape, qkv, squares);
  CheckNorms(kOp, shape, qkv, norms);
  Device& device = qkv.device();
  CheckOperand(kOp, "out", out, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, WholeNormForwardRecord(shape, qkv.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::whole_norm_forward)(shape, qkv, norms, squares, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const WidenedNorms widened(shape, norms);
  WholeNormForwardCpu(device.threads(), shape, F32In(qkv).data(), widened.parts, norms.options,
                      squares.f32(), F32Out(out).data());
}

void WholeNormSlopes(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                     const Tensor& squares, const Tensor& dqkv, Tensor& slopes, Tensor& dweights) {
  constexpr OpKind kOp = OpKind::kHeadNormBackward;
  CheckQkv(kOp, shape, qkv, squares);
  CheckNorms(kOp, shape, qkv, norms);
  Device& device = qkv.device();
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, qkv.dtype());
  CheckOperand(kOp, "slopes", slopes, SumsShape(shape), device);
  CheckPlainFloat(kOp, "dweights", dweights);
  CheckOperand(kOp, "dweights", dweights, {NormedColumns(shape)}, device, dweights.dtype());
  const OpScope scope(device, WholeNormSlopesRecord(shape, qkv.dtype(), dweights.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::whole_norm_slopes)(shape, qkv, norms, squares, dqkv,
                                                                slopes, dweights);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const WidenedNorms widened(shape, norms);
  WholeNormSlopesCpu(device.threads(), shape, F32In(qkv).data(), widened.parts, norms.options,
                     squares.f32(), F32In(dqkv).data(), slopes.f32(), F32Out(dweights).data());
}

void WholeNormBackward(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                       const Tensor& squares, const Tensor& slopes, Tensor& dqkv) {
  constexpr OpKind kOp = OpKind::kHeadNormBackward;
  CheckQkv(kOp, shape, qkv, squares);
  CheckNorms(kOp, shape, qkv, norms);
  Device& device = qkv.device();
  CheckOperand(kOp, "slopes", slopes, SumsShape(shape), device);
  CheckOperand(kOp, "dqkv", dqkv, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, WholeNormBackwardRecord(shape, qkv.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::whole_norm_backward)(shape, qkv, norms, squares,
                                                                  slopes, dqkv);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const WidenedNorms widened(shape, norms);
  WholeNormBackwardCpu(device.threads(), shape, F32In(qkv).data(), widened.parts, norms.options,
                       squares.f32(), slopes.f32(), F32InOut(dqkv).data());
}

}  // namespace trimtab

#include "engine/ops/vocabulary/cross_entropy.h"

#include <algorithm>

#include "engine/ops/cpu/vocabulary/cross_entropy.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

constexpr int64_t kParts = 3;

// Values moved: `matrices` of [rows, columns] of `dtype`, and `vectors` of [rows] of fp32 or int32,
// which are as long. A loss in passes of their own reads the logits for the largest, for the sum
// and for the gradient: `saved` is how many of these reads are none here.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t matrices,
                int64_t vectors, int64_t saved) {
  const int64_t matrix = rows * columns * SizeOf(dtype);
  return {.kind = kind,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = matrices * matrix + vectors * rows * SizeOf(DType::kF32),
          .fused = {.kind = OpKind::kCrossEntropyParts, .bytes = saved * matrix}};
}

LogitsShape MakeLogitsShape(const Tensor& logits, const VocabShard& shard) {
  const int64_t columns = logits.dim(1);
  return {.rows = logits.dim(0),
          .columns = columns,
          .used = std::clamp<int64_t>(shard.valid - shard.start, 0, columns),
          .first_id = shard.start};
}

// What the ops have in common.
LogitsShape Check(OpKind op, const Tensor& logits, const Tensor& targets, const VocabShard& shard) {
  CheckMatrix(op, "logits", logits);
  CheckPlainFloat(op, "logits", logits);
  CheckOperand(op, "targets", targets, {logits.dim(0)}, logits.device(), DType::kI32);
  return MakeLogitsShape(logits, shard);
}

}  // namespace

OpRecord CrossEntropyRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kCrossEntropy, rows, columns, dtype, 2, 2, /*saved=*/2);
}
OpRecord CrossEntropyPartsRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kCrossEntropyParts, rows, columns, dtype, 1, 1 + kParts, /*saved=*/1);
}
OpRecord CrossEntropyGradRecord(int64_t rows, int64_t columns, int64_t shards, DType dtype) {
  OpRecord record = Record(OpKind::kCrossEntropyGrad, rows, columns, dtype, 2, 2 + kParts * shards,
                           /*saved=*/0);
  record.dims[2] = shards;
  return record;
}

void CrossEntropy(const Tensor& targets, int64_t vocab_size, const Tensor& scale, Tensor& logits,
                  Tensor& losses, const SoftCap& soft_cap) {
  constexpr OpKind kOp = OpKind::kCrossEntropy;
  const LogitsShape shape = Check(kOp, logits, targets, {.start = 0, .valid = vocab_size});
  TRIMTAB_ASSERT(shape.used == vocab_size, "cross_entropy: {} columns of a vocabulary of {}",
                 shape.columns, vocab_size);
  Device& device = logits.device();
  CheckOperand(kOp, "scale", scale, {1}, device);
  CheckOperand(kOp, "losses", losses, {shape.rows}, device);
  const OpScope scope(device, CrossEntropyRecord(shape.rows, shape.columns, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy)(targets, vocab_size, scale, logits,
                                                            losses, soft_cap);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropyCpu(device.threads(), shape, targets.i32(), *scale.f32(), soft_cap,
                  F32InOut(logits).data(), losses.f32());
}

void CrossEntropyParts(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
                       Tensor& parts) {
  constexpr OpKind kOp = OpKind::kCrossEntropyParts;
  const LogitsShape shape = Check(kOp, logits, targets, shard);
  Device& device = logits.device();
  CheckOperand(kOp, "parts", parts, {kParts, shape.rows}, device);
  const OpScope scope(device, CrossEntropyPartsRecord(shape.rows, shape.columns, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy_parts)(logits, targets, shard, parts);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropyPartsCpu(device.threads(), shape, F32In(logits).data(), targets.i32(), parts.f32());
}

void CrossEntropyGrad(const Tensor& targets, const VocabShard& shard, const Tensor& parts,
                      const Tensor& scale, Tensor& logits, Tensor& losses,
                      const SoftCap& soft_cap) {
  constexpr OpKind kOp = OpKind::kCrossEntropyGrad;
  const LogitsShape shape = Check(kOp, logits, targets, shard);
  Device& device = logits.device();
  TRIMTAB_ASSERT(parts.defined() && parts.shape().rank() == 3 && parts.dim(0) > 0,
                 "cross_entropy_grad: parts are not those of shards");
  const int64_t shards = parts.dim(0);
  CheckOperand(kOp, "parts", parts, {shards, kParts, shape.rows}, device);
  CheckOperand(kOp, "scale", scale, {1}, device);
  CheckOperand(kOp, "losses", losses, {shape.rows}, device);
  const OpScope scope(device,
                      CrossEntropyGradRecord(shape.rows, shape.columns, shards, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy_grad)(targets, shard, parts, scale,
                                                                 logits, losses, soft_cap);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropyGradCpu(device.threads(), shape, shards, targets.i32(), parts.f32(), *scale.f32(),
                      soft_cap, F32InOut(logits).data(), losses.f32());
}

}  // namespace trimtab

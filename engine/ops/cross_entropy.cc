#include "engine/ops/cross_entropy.h"

#include <algorithm>

#include "engine/ops/cross_entropy_cpu.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/widen.h"

namespace trimtab {
namespace {

// Values moved: `matrices` of [rows, columns] of `dtype`, and `vectors` of [rows] of fp32 or int32,
// which are as long.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t matrices,
                int64_t vectors) {
  return {
      .kind = kind,
      .dtype = dtype,
      .dims = {rows, columns},
      .bytes = matrices * rows * columns * SizeOf(dtype) + vectors * rows * SizeOf(DType::kF32)};
}

LogitsShape MakeLogitsShape(const Tensor& logits, const VocabShard& shard) {
  const int64_t columns = logits.dim(1);
  return {.rows = logits.dim(0),
          .columns = columns,
          .used = std::clamp<int64_t>(shard.valid - shard.start, 0, columns),
          .first_id = shard.start};
}

}  // namespace

OpRecord CrossEntropyMaxRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kCrossEntropyMax, rows, columns, dtype, 1, 1);
}
OpRecord CrossEntropySumRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kCrossEntropySum, rows, columns, dtype, 1, 4);
}
OpRecord CrossEntropyGradRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kCrossEntropyGrad, rows, columns, dtype, 2, 5);
}

void CrossEntropyMax(const Tensor& logits, const VocabShard& shard, Tensor& row_max) {
  constexpr OpKind kOp = OpKind::kCrossEntropyMax;
  CheckMatrix(kOp, "logits", logits);
  CheckPlainFloat(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  const OpScope scope(device, CrossEntropyMaxRecord(shape.rows, shape.columns, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy_max)(logits, shard, row_max);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropyMaxCpu(device.threads(), shape, F32In(logits).data(), row_max.f32());
}

void CrossEntropySum(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
                     const Tensor& row_max, Tensor& sums) {
  constexpr OpKind kOp = OpKind::kCrossEntropySum;
  CheckMatrix(kOp, "logits", logits);
  CheckPlainFloat(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "targets", targets, {shape.rows}, device, DType::kI32);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  CheckOperand(kOp, "sums", sums, {2, shape.rows}, device);
  const OpScope scope(device, CrossEntropySumRecord(shape.rows, shape.columns, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy_sum)(logits, targets, shard, row_max,
                                                                sums);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropySumCpu(device.threads(), shape, F32In(logits).data(), targets.i32(), row_max.f32(),
                     sums.f32());
}

void CrossEntropyGrad(const Tensor& targets, const VocabShard& shard, const Tensor& row_max,
                      const Tensor& sums, const Tensor& scale, Tensor& logits, Tensor& losses,
                      const SoftCap& soft_cap) {
  constexpr OpKind kOp = OpKind::kCrossEntropyGrad;
  CheckMatrix(kOp, "logits", logits);
  CheckPlainFloat(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "targets", targets, {shape.rows}, device, DType::kI32);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  CheckOperand(kOp, "sums", sums, {2, shape.rows}, device);
  CheckOperand(kOp, "scale", scale, {1}, device);
  CheckOperand(kOp, "losses", losses, {shape.rows}, device);
  const OpScope scope(device, CrossEntropyGradRecord(shape.rows, shape.columns, logits.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::cross_entropy_grad)(targets, shard, row_max, sums,
                                                                 scale, logits, losses, soft_cap);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CrossEntropyGradCpu(device.threads(), shape, targets.i32(), row_max.f32(), sums.f32(),
                      *scale.f32(), soft_cap, F32InOut(logits).data(), losses.f32());
}

}  // namespace trimtab

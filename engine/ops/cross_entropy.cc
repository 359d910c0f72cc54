#include "engine/ops/cross_entropy.h"

#include <algorithm>

#include "engine/ops/cross_entropy_cpu.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

// fp32 values (and int32 ids, which are as long): `matrices` of [rows, columns], `vectors` of
// [rows].
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, int64_t matrices, int64_t vectors) {
  return {.kind = kind,
          .dims = {rows, columns},
          .bytes = (matrices * rows * columns + vectors * rows) * SizeOf(DType::kF32)};
}

LogitsShape MakeLogitsShape(const Tensor& logits, const VocabShard& shard) {
  const int64_t columns = logits.dim(1);
  return {.rows = logits.dim(0),
          .columns = columns,
          .used = std::clamp<int64_t>(shard.valid - shard.start, 0, columns),
          .first_id = shard.start};
}

}  // namespace

OpRecord CrossEntropyMaxRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kCrossEntropyMax, rows, columns, 1, 1);
}
OpRecord CrossEntropySumRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kCrossEntropySum, rows, columns, 1, 4);
}
OpRecord CrossEntropyGradRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kCrossEntropyGrad, rows, columns, 2, 5);
}

void CrossEntropyMax(const Tensor& logits, const VocabShard& shard, Tensor& row_max) {
  constexpr OpKind kOp = OpKind::kCrossEntropyMax;
  CheckMatrix(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "logits", logits, logits.shape(), device);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  const OpScope scope(device, CrossEntropyMaxRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  CrossEntropyMaxCpu(device.threads(), shape, logits.f32(), row_max.f32());
}

void CrossEntropySum(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
                     const Tensor& row_max, Tensor& sums) {
  constexpr OpKind kOp = OpKind::kCrossEntropySum;
  CheckMatrix(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "logits", logits, logits.shape(), device);
  CheckOperand(kOp, "targets", targets, {shape.rows}, device, DType::kI32);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  CheckOperand(kOp, "sums", sums, {2, shape.rows}, device);
  const OpScope scope(device, CrossEntropySumRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  CrossEntropySumCpu(device.threads(), shape, logits.f32(), targets.i32(), row_max.f32(),
                     sums.f32());
}

void CrossEntropyGrad(const Tensor& targets, const VocabShard& shard, const Tensor& row_max,
                      const Tensor& sums, float scale, Tensor& logits, Tensor& losses) {
  constexpr OpKind kOp = OpKind::kCrossEntropyGrad;
  CheckMatrix(kOp, "logits", logits);
  Device& device = logits.device();
  const LogitsShape shape = MakeLogitsShape(logits, shard);
  CheckOperand(kOp, "targets", targets, {shape.rows}, device, DType::kI32);
  CheckOperand(kOp, "row_max", row_max, {shape.rows}, device);
  CheckOperand(kOp, "sums", sums, {2, shape.rows}, device);
  CheckOperand(kOp, "logits", logits, logits.shape(), device);
  CheckOperand(kOp, "losses", losses, {shape.rows}, device);
  const OpScope scope(device, CrossEntropyGradRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  CrossEntropyGradCpu(device.threads(), shape, targets.i32(), row_max.f32(), sums.f32(), scale,
                      logits.f32(), losses.f32());
}

}  // namespace trimtab

#include "engine/ops/embedding.h"

#include "engine/ops/dispatch.h"
#include "engine/ops/embedding_cpu.h"

namespace trimtab {
namespace {

// `values` fp32 rows and `ids` int32 per row of the activation.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, int64_t values, int64_t ids) {
  return {
      .kind = kind,
      .dims = {rows, columns},
      .bytes = rows * columns * values * SizeOf(DType::kF32) + rows * ids * SizeOf(DType::kI32)};
}

}  // namespace

OpRecord EmbeddingForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kEmbeddingForward, rows, columns, 2, 1);
}
OpRecord EmbeddingBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kEmbeddingBackward, rows, columns, 3, 1);
}
OpRecord PositionForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kPositionForward, rows, columns, 3, 0);
}
OpRecord PositionBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kPositionBackward, rows, columns, 3, 0);
}

void EmbeddingForward(const Tensor& tokens, const Tensor& table, int64_t vocab_start, Tensor& out) {
  constexpr OpKind kOp = OpKind::kEmbeddingForward;
  CheckMatrix(kOp, "out", out);
  CheckMatrix(kOp, "table", table);
  Device& device = out.device();
  const int64_t rows = out.dim(0);
  const int64_t columns = out.dim(1);
  CheckOperand(kOp, "tokens", tokens, {rows}, device, DType::kI32);
  CheckOperand(kOp, "table", table, {table.dim(0), columns}, device);
  CheckOperand(kOp, "out", out, {rows, columns}, device);
  const OpScope scope(device, EmbeddingForwardRecord(rows, columns));
  if (!RunsOnCpu(device, kOp)) return;
  EmbeddingForwardCpu(device.threads(), rows, columns, tokens.i32(), table.f32(), vocab_start,
                      table.dim(0), out.f32());
}

void EmbeddingBackward(const Tensor& tokens, const Tensor& dout, int64_t vocab_start,
                       Tensor& dtable) {
  constexpr OpKind kOp = OpKind::kEmbeddingBackward;
  CheckMatrix(kOp, "dout", dout);
  CheckMatrix(kOp, "dtable", dtable);
  Device& device = dout.device();
  const int64_t rows = dout.dim(0);
  const int64_t columns = dout.dim(1);
  CheckOperand(kOp, "tokens", tokens, {rows}, device, DType::kI32);
  CheckOperand(kOp, "dout", dout, {rows, columns}, device);
  CheckOperand(kOp, "dtable", dtable, {dtable.dim(0), columns}, device);
  const OpScope scope(device, EmbeddingBackwardRecord(rows, columns));
  if (!RunsOnCpu(device, kOp)) return;
  EmbeddingBackwardCpu(device.threads(), rows, columns, tokens.i32(), dout.f32(), vocab_start,
                       dtable.dim(0), dtable.f32());
}

namespace {

// Both directions: `table` [at least `sequence` rows, C], `x` [rows, C].
void CheckPosition(OpKind op, const Tensor& table, int64_t row_start, int64_t sequence,
                   const Tensor& x) {
  CheckMatrix(op, "x", x);
  CheckMatrix(op, "table", table);
  CheckOperand(op, "x", x, x.shape(), x.device());
  CheckOperand(op, "table", table, {table.dim(0), x.dim(1)}, x.device());
  TRIMTAB_ASSERT(row_start >= 0 && sequence >= 1 && sequence <= table.dim(0),
                 "{}: sequence {} from row {}, the table has {} positions", Name(op), sequence,
                 row_start, table.dim(0));
}

}  // namespace

void PositionForward(const Tensor& table, int64_t row_start, int64_t sequence, Tensor& x) {
  constexpr OpKind kOp = OpKind::kPositionForward;
  CheckPosition(kOp, table, row_start, sequence, x);
  Device& device = x.device();
  const OpScope scope(device, PositionForwardRecord(x.dim(0), x.dim(1)));
  if (!RunsOnCpu(device, kOp)) return;
  PositionForwardCpu(device.threads(), x.dim(0), x.dim(1), table.f32(), row_start, sequence,
                     x.f32());
}

void PositionBackward(const Tensor& dx, int64_t row_start, int64_t sequence, Tensor& dtable) {
  constexpr OpKind kOp = OpKind::kPositionBackward;
  CheckPosition(kOp, dtable, row_start, sequence, dx);
  Device& device = dx.device();
  const OpScope scope(device, PositionBackwardRecord(dx.dim(0), dx.dim(1)));
  if (!RunsOnCpu(device, kOp)) return;
  PositionBackwardCpu(device.threads(), dx.dim(0), dx.dim(1), dx.f32(), row_start, sequence,
                      dtable.f32());
}

}  // namespace trimtab

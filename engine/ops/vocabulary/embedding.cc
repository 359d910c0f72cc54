#include "engine/ops/vocabulary/embedding.h"

#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/vocabulary/embedding.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

// Per row of the activation: `value_bytes` per column, and `ids` int32.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t value_bytes,
                int64_t ids) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = rows * columns * value_bytes + rows * ids * SizeOf(DType::kI32)};
}

}  // namespace

OpRecord EmbeddingForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kEmbeddingForward, rows, columns, dtype, 2 * SizeOf(dtype), 1);
}
OpRecord EmbeddingBackwardRecord(int64_t rows, int64_t columns, DType dtype, DType gradient) {
  return Record(OpKind::kEmbeddingBackward, rows, columns, dtype,
                SizeOf(dtype) + 2 * SizeOf(gradient), 1);
}
OpRecord PositionForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kPositionForward, rows, columns, dtype, 3 * SizeOf(dtype), 0);
}
OpRecord PositionBackwardRecord(int64_t rows, int64_t columns, DType dtype, DType gradient) {
  return Record(OpKind::kPositionBackward, rows, columns, dtype,
                SizeOf(dtype) + 2 * SizeOf(gradient), 0);
}

void EmbeddingForward(const Tensor& tokens, const Tensor& table, int64_t vocab_start, Tensor& out) {
  constexpr OpKind kOp = OpKind::kEmbeddingForward;
  CheckMatrix(kOp, "out", out);
  CheckMatrix(kOp, "table", table);
  CheckPlainFloat(kOp, "out", out);
  Device& device = out.device();
  const int64_t rows = out.dim(0);
  const int64_t columns = out.dim(1);
  CheckOperand(kOp, "tokens", tokens, {rows}, device, DType::kI32);
  CheckOperand(kOp, "table", table, {table.dim(0), columns}, device, out.dtype());
  const OpScope scope(device, EmbeddingForwardRecord(rows, columns, out.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::embedding_forward)(tokens, table, vocab_start, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  EmbeddingForwardCpu(device.threads(), rows, columns * SizeOf(out.dtype()), tokens.i32(),
                      table.raw(), vocab_start, table.dim(0), out.raw());
}

namespace {

// EmbeddingBackward into a table of 16 bits: only rows that occur are widened, added up and rounded
// back, once each.
void AddToUsedRows(const Tensor& tokens, const F32In& dout, int64_t vocab_start, Tensor& dtable) {
  const DType dtype = dtable.dtype();
  const int64_t columns = dtable.dim(1);
  const UsedRows used = FindUsedRows(tokens.numel(), tokens.i32(), vocab_start, dtable.dim(0));
  const auto count = static_cast<int64_t>(used.rows.size());
  HostFloats sums(count * columns);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = used.rows[static_cast<size_t>(i)];
    WidenSpan(dtype, columns, ElementAt(dtype, dtable.raw(), row * columns),
              sums.data() + i * columns);
  }
  EmbeddingBackwardCpu(dtable.device().threads(), tokens.numel(), columns, used.places.data(),
                       dout.data(), /*first_id=*/0, count, sums.data());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = used.rows[static_cast<size_t>(i)];
    RoundSpan(dtype, columns, sums.data() + i * columns,
              ElementAt(dtype, dtable.raw(), row * columns));
  }
}

}  // namespace

void EmbeddingBackward(const Tensor& tokens, const Tensor& dout, int64_t vocab_start,
                       Tensor& dtable) {
  constexpr OpKind kOp = OpKind::kEmbeddingBackward;
  CheckMatrix(kOp, "dout", dout);
  CheckMatrix(kOp, "dtable", dtable);
  CheckPlainFloat(kOp, "dout", dout);
  CheckPlainFloat(kOp, "dtable", dtable);
  Device& device = dout.device();
  const int64_t rows = dout.dim(0);
  const int64_t columns = dout.dim(1);
  CheckOperand(kOp, "tokens", tokens, {rows}, device, DType::kI32);
  CheckOperand(kOp, "dtable", dtable, {dtable.dim(0), columns}, device, dtable.dtype());
  const OpScope scope(device, EmbeddingBackwardRecord(rows, columns, dout.dtype(), dtable.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::embedding_backward)(tokens, dout, vocab_start, dtable);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const F32In dout32(dout);
  if (dtable.dtype() == DType::kF32) {
    EmbeddingBackwardCpu(device.threads(), rows, columns, tokens.i32(), dout32.data(), vocab_start,
                         dtable.dim(0), dtable.f32());
  } else {
    AddToUsedRows(tokens, dout32, vocab_start, dtable);
  }
}

namespace {

// Both directions: `table` [more rows than there are positions, C] of `dtype`, `x` [rows, C].
void CheckPosition(OpKind op, const Tensor& table, int64_t row_start, const RowLayout& layout,
                   DType dtype, const Tensor& x) {
  CheckMatrix(op, "x", x);
  CheckMatrix(op, "table", table);
  CheckPlainFloat(op, "x", x);
  CheckPlainFloat(op, "table", table);
  CheckOperand(op, "table", table, {table.dim(0), x.dim(1)}, x.device(), dtype);
  TRIMTAB_ASSERT(row_start >= 0 && layout.sequence >= 1 && layout.end_position() <= table.dim(0),
                 "{}: {} positions of a sequence up to {}, from row {}; the table has {}", Name(op),
                 layout.sequence, layout.end_position(), row_start, table.dim(0));
}

}  // namespace

void PositionForward(const Tensor& table, int64_t row_start, const RowLayout& layout, Tensor& x) {
  constexpr OpKind kOp = OpKind::kPositionForward;
  CheckPosition(kOp, table, row_start, layout, x.dtype(), x);
  Device& device = x.device();
  const OpScope scope(device, PositionForwardRecord(x.dim(0), x.dim(1), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::position_forward)(table, row_start, layout, x);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const Tensor used = table.Slice(0, {layout.end_position(), x.dim(1)});
  PositionForwardCpu(device.threads(), x.dim(0), x.dim(1), F32In(used).data(), row_start,
                     layout.view(), F32InOut(x).data());
}

void PositionBackward(const Tensor& dx, int64_t row_start, const RowLayout& layout,
                      Tensor& dtable) {
  constexpr OpKind kOp = OpKind::kPositionBackward;
  CheckPosition(kOp, dtable, row_start, layout, dtable.dtype(), dx);
  Device& device = dx.device();
  const OpScope scope(device,
                      PositionBackwardRecord(dx.dim(0), dx.dim(1), dx.dtype(), dtable.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::position_backward)(dx, row_start, layout, dtable);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const Tensor used = dtable.Slice(0, {layout.end_position(), dx.dim(1)});
  PositionBackwardCpu(device.threads(), dx.dim(0), dx.dim(1), F32In(dx).data(), row_start,
                      layout.view(), F32InOut(used).data());
}

}  // namespace trimtab

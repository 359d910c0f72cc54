#include "engine/ops/packed/packed_lookup.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"
#include "engine/ops/kernel.h"

namespace trimtab {

OpRecord PackedLookupRecord(int64_t rows, const PackedMatrix& table, DType dtype) {
  return {
      .kind = OpKind::kEmbeddingForward,
      .dtype = dtype,
      .dims = {rows, table.in},
      .bytes = rows * (table.in * SizeOf(dtype) + table.bytes() / table.out + SizeOf(DType::kI32))};
}

void PackedLookup(const Tensor& tokens, const PackedMatrix& table, int64_t vocab_start,
                  Tensor& out) {
  constexpr OpKind kOp = OpKind::kEmbeddingForward;
  CheckMatrix(kOp, "out", out);
  CheckPlainFloat(kOp, "out", out);
  TRIMTAB_ASSERT(table.matrices == 1, "packed_lookup: {} matrices, expected one", table.matrices);
  Device& device = out.device();
  const int64_t rows = out.dim(0);
  CheckOperand(kOp, "tokens", tokens, {rows}, device, DType::kI32);
  CheckOperand(kOp, "out", out, {rows, table.in}, device, out.dtype());
  const OpScope scope(device, PackedLookupRecord(rows, table, out.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::packed_lookup)(tokens, table, vocab_start, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  F32Out out32(out);
  float* values = out32.data();
  ParallelFor(device.threads(), rows, RowGrain(table.in), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = tokens.i32()[i] - vocab_start;
      float* to = values + i * table.in;
      if (row < 0 || row >= table.out) {
        std::fill_n(to, table.in, 0.0f);
      } else {
        UnpackRow(table, row, to);
      }
    }
  });
}

}  // namespace trimtab

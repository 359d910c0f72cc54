#include "engine/ops/fp8/grouped_quantize.h"

#include <algorithm>

#include "engine/ops/cpu/fp8/quantize.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {

int64_t TransposedGroupsSize(GroupRows rows, int64_t columns) {
  int64_t padded = 0;
  for (const int64_t each : rows) padded += PaddedFp8Rows(each);
  return padded * columns;
}

void QuantizeGroups(const Tensor& x, GroupRows rows, const Tensor& scale, Fp8Output& out) {
  constexpr OpKind kOp = OpKind::kQuantize;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const int64_t columns = x.dim(1);
  const bool with_rows = out.rows.defined();
  const bool with_transposed = out.transposed.defined();
  TRIMTAB_ASSERT(with_rows || with_transposed, "quantize: no output is defined");
  const DType dtype = with_rows ? out.rows.dtype() : out.transposed.dtype();
  TRIMTAB_ASSERT(IsFp8(dtype), "quantize: out is {}, expected fp8", Name(dtype));
  CheckOperand(kOp, "scale", scale, {1}, device);
  if (with_rows) CheckOperand(kOp, "out.rows", out.rows, x.shape(), device, dtype);
  if (with_transposed) {
    CheckOperand(kOp, "out.transposed", out.transposed, {TransposedGroupsSize(rows, columns)},
                 device, dtype);
  }
  if (out.amax.defined()) CheckOperand(kOp, "out.amax", out.amax, {1}, device);
  int64_t first = 0;
  for (const int64_t each : rows) first += each;
  TRIMTAB_ASSERT(first == x.dim(0), "quantize: groups of {} rows, and x has {}", first, x.dim(0));
  const OpScope scope(device,
                      QuantizeRecord(first, columns, x.dtype(), with_rows, with_transposed));
  if (device.kind() == DeviceKind::kMeta) return;
  if (device.kind() == DeviceKind::kCpu && out.amax.defined()) {
    float& amax = *out.amax.f32();
    amax = std::max(amax, AmaxCpu(device.threads(), x.numel(), x.dtype(), x.raw()));
  }
  first = 0;
  int64_t written = 0;  // elements of out.transposed
  for (const int64_t count : rows) {
    if (count == 0) continue;
    const Tensor part = x.Rows(first, count);
    const int64_t stride = PaddedFp8Rows(count);
    Fp8Output of_group = {
        .rows = with_rows ? out.rows.Rows(first, count) : Tensor(),
        .transposed = with_transposed ? out.transposed.Slice(written, {columns, stride}) : Tensor(),
        .amax = out.amax};
    if (device.kind() == DeviceKind::kCuda) {
      CudaKernel(device, kOp, &CudaOps::quantize)(part, scale, of_group);
    } else {
      QuantizeCpu(device.threads(), count, columns, *scale.f32(), x.dtype(), part.raw(), dtype,
                  with_rows ? of_group.rows.raw() : nullptr,
                  with_transposed ? of_group.transposed.raw() : nullptr, stride);
    }
    first += count;
    written += columns * stride;
  }
}

}  // namespace trimtab

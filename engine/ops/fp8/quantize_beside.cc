#include "engine/ops/fp8/quantize_beside.h"

#include <algorithm>

#include "engine/ops/cpu/fp8/quantize.h"
#include "engine/ops/dispatch.h"

namespace trimtab {

void CheckBeside(OpKind op, const Fp8Beside& beside, const Tensor& result, DType dtype) {
  const Device& device = result.device();
  const Fp8Output& out = beside.out;
  CheckOperand(op, "scale", beside.scale, {1}, device);
  CheckOperand(op, "out.rows", out.rows, result.shape(), device, dtype);
  if (out.transposed.defined()) {
    CheckOperand(op, "out.transposed", out.transposed, {result.dim(1), result.dim(0)}, device,
                 dtype);
  }
  if (out.amax.defined()) CheckOperand(op, "out.amax", out.amax, {1}, device);
}

void QuantizeBesideCpu(const Tensor& result, const Fp8Beside& beside) {
  const int threads = result.device().threads();
  const Fp8Output& out = beside.out;
  if (out.amax.defined()) {
    float& amax = *out.amax.f32();
    amax = std::max(amax, AmaxCpu(threads, result.numel(), result.dtype(), result.raw()));
  }
  QuantizeCpu(threads, result.dim(0), result.dim(1), *beside.scale.f32(), result.dtype(),
              result.raw(), out.rows.dtype(), out.rows.raw(),
              out.transposed.defined() ? out.transposed.raw() : nullptr, result.dim(0));
}

}  // namespace trimtab

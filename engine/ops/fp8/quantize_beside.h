// What the dispatchers of ops that quantise their results (Fp8Beside) share.
#pragma once

#include "engine/ops/fp8/quantize.h"

namespace trimtab {

/// The copies must fit `result` [rows, C], and be of type `dtype`.
void CheckBeside(OpKind op, const Fp8Beside& beside, const Tensor& result, DType dtype);

/// Writes the copies of `result`, which is on a cpu and has been stored.
void QuantizeBesideCpu(const Tensor& result, const Fp8Beside& beside);

}  // namespace trimtab

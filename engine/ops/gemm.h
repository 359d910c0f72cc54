// Matrix product, row-major: c [m, n] = op(a) [m, k] * op(b) [k, n] (+ c) (+ bias per column).
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

enum class Transpose { kNo, kYes };

/// Cost of one product. Each operand moves once; c twice when accumulated into.
OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, bool accumulate, DType dtype = DType::kF32);

/// a is [m, k] or, transposed, [k, m]; b is [k, n] or, transposed, [n, k]; c is [m, n].
/// `accumulate` adds to c instead of overwriting it. `bias`, if defined, is [n] and is added to
/// every row; it cannot be combined with accumulate. Shapes that disagree are a programmer's fault.
void Gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
          bool accumulate = false, const Tensor& bias = {});

/// Cost of BiasBackward over dy [rows, columns].
OpRecord BiasBackwardRecord(int64_t rows, int64_t columns);

/// dbias [n] = (dbias +) column sums of dy [m, n].
void BiasBackward(const Tensor& dy, Tensor& dbias, bool accumulate);

}  // namespace trimtab

#include "engine/optim/orthogonalize.h"

#include <utility>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/optimizer/newton_schulz.h"

namespace trimtab {

void Orthogonalize(Tensor& x) {
  constexpr int kIterations = 5;
  constexpr QuinticFactors kFactors = {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};
  constexpr float kEpsilon = 1e-7f;
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  const bool wide = rows <= columns;
  const int64_t side = wide ? rows : columns;
  const auto workspace = [&x](const Shape& shape, DType dtype) {
    return Tensor::Empty(x.device(), shape, dtype, MemoryTag::kWorkspace);
  };
  Tensor squares = workspace({1}, DType::kF32);
  SumSquares(x, squares);
  Normalize(squares, kEpsilon, x);
  Tensor gram = workspace({side, side}, x.dtype());
  Tensor factor = workspace({side, side}, x.dtype());
  Tensor next = workspace({rows, columns}, x.dtype());
  Tensor current = x;
  for (int i = 0; i < kIterations; ++i) {
    // x x^T, or where that is smaller x^T x: both are symmetric.
    Gemm(current, wide ? Transpose::kNo : Transpose::kYes, current,
         wide ? Transpose::kYes : Transpose::kNo, gram);
    Gemm(gram, Transpose::kNo, gram, Transpose::kNo, factor);
    Quintic(kFactors, gram, factor);
    Gemm(wide ? factor : current, Transpose::kNo, wide ? current : factor, Transpose::kNo, next);
    std::swap(current, next);
  }
  // An odd number of iterations leaves the result beside x.
  static_assert(kIterations % 2 == 1);
  Copy(current, x);
}

}  // namespace trimtab

// CPU kernels of gemm.h.
#pragma once

#include <cstdint>

namespace trimtab {

/// One row-major matrix with its leading dimension (elements from one row to the next).
struct MatrixView {
  const float* data;
  int64_t stride;
  bool transposed;
};

/// c [m, n] = alpha * op(a) [m, k] * op(b) [k, n] + beta * c, on the threads that UseThreads set
/// (one, inside a parallel loop).
void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_stride);

/// What a product is added to: what c holds, or else a bias [n] of every row and an addend [m, n].
/// And what is done with the result, as GemmOptions says. Each of the pointers may be null.
struct GemmTerms {
  bool accumulate = false;
  const float* bias = nullptr;
  const float* addend = nullptr;
  const float* gelu_of = nullptr;
  float* gelu = nullptr;
  /// The product's own sums are cut short (short_sums.h).
  bool short_sums = false;

  /// Those of the part of c [m, n] that begins at `row` and `column`.
  GemmTerms From(int64_t row, int64_t column, int64_t n) const;
};

/// As Gemm.
void GemmCpu(int threads, int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
             float* c, const GemmTerms& terms);

void BiasBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dy, float* dbias,
                     bool accumulate);

}  // namespace trimtab

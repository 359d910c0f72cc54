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

/// As Gemm; `bias` may be null.
void GemmCpu(int threads, int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
             float* c, bool accumulate, const float* bias);

void BiasBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dy, float* dbias,
                     bool accumulate);

}  // namespace trimtab

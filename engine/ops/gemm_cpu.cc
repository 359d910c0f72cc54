#include "engine/ops/gemm_cpu.h"

#include <dnnl.h>

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/elementwise_cpu.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Rows summed before they join the total: keeps rounding errors small.
constexpr int64_t kRowChunk = 64;

// sums[j] = sum over rows of dy[row][j], for n <= kColumnBlock columns.
TRIMTAB_CLONES void ColumnSums(int64_t rows, int64_t n, int64_t stride, const float* dy,
                               float* sums) {
  float total[kColumnBlock] = {};
  for (int64_t start = 0; start < rows; start += kRowChunk) {
    const int64_t end = std::min(rows, start + kRowChunk);
    float chunk[kColumnBlock] = {};
    for (int64_t row = start; row < end; ++row) {
      const float* x = dy + row * stride;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) chunk[j] += x[j];
    }
    for (int64_t j = 0; j < n; ++j) total[j] += chunk[j];
  }
  for (int64_t j = 0; j < n; ++j) sums[j] = total[j];
}

}  // namespace

void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_stride) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                 a.stride, b.data, b.stride, beta, c, c_stride);
  TRIMTAB_ASSERT(status == dnnl_success, "dnnl_sgemm refused m {} n {} k {}: status {}", m, n, k,
                 static_cast<int>(status));
}

void GemmCpu(int threads, int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
             float* c, bool accumulate, const float* bias) {
  UseThreads(threads);
  const bool add = accumulate || bias != nullptr;
  // Starting from the bias costs less than another pass over the product.
  if (bias != nullptr) FillRowsCpu(threads, m, n, bias, c);
  Sgemm(m, n, k, 1.0f, a, b, add ? 1.0f : 0.0f, c, n);
}

void BiasBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dy, float* dbias,
                     bool accumulate) {
  ParallelFor(threads, columns, ColumnGrain(rows), [=](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kColumnBlock) {
      const int64_t n = std::min(kColumnBlock, end - j);
      float sums[kColumnBlock];
      ColumnSums(rows, n, columns, dy + j, sums);
      for (int64_t i = 0; i < n; ++i) dbias[j + i] = (accumulate ? dbias[j + i] : 0.0f) + sums[i];
    }
  });
}

}  // namespace trimtab

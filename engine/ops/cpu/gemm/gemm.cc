#include "engine/ops/cpu/gemm/gemm.h"

#include <dnnl.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/activation/activation.h"
#include "engine/ops/cpu/gemm/short_sums.h"
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

// oneDNN multiplies few columns by a transposed operand where it lies. Its rows are read side by
// side, and where they are a multiple of 2 KiB apart they compete for the same few sets of the
// cache: the product takes up to three times as long. So such an operand is copied first, to rows
// that are not, as many columns at a time as stay in the cache.
constexpr int64_t kCompetingStride = 512;  // floats
constexpr int64_t kFewColumns = 512;
constexpr int64_t kCopiedColumns = 480;
constexpr int64_t kMostCopied = int64_t{1} << 20;  // floats
constexpr int64_t kCopyGrain = 48;                 // the widest kernel's

bool RowsCompete(int64_t n, int64_t k, const MatrixView& a) {
  return k > 0 && a.transposed && a.stride % kCompetingStride == 0 && n < kFewColumns;
}

void Dnnl(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
          float beta, float* c, int64_t c_stride) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                 a.stride, b.data, b.stride, beta, c, c_stride);
  TRIMTAB_ASSERT(status == dnnl_success, "dnnl_sgemm refused m {} n {} k {}: status {}", m, n, k,
                 static_cast<int>(status));
}

// As Sgemm, from copies of a's columns.
void SgemmOfCopies(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a,
                   const MatrixView& b, float beta, float* c, int64_t c_stride) {
  const int64_t fitting = kMostCopied / k / kCopyGrain * kCopyGrain;
  const int64_t most = std::clamp(fitting, kCopyGrain, kCopiedColumns);
  const int64_t stride = most + 8;  // no power of two
  // Of the kernel, as oneDNN's own: kept by its thread, and not the device's.
  thread_local std::vector<float> copy;
  copy.resize(std::max(copy.size(), static_cast<size_t>(k * stride)));
  for (int64_t begin = 0; begin < m; begin += most) {
    const int64_t columns = std::min(most, m - begin);
    for (int64_t row = 0; row < k; ++row) {
      std::copy_n(a.data + row * a.stride + begin, columns, copy.data() + row * stride);
    }
    Dnnl(columns, n, k, alpha, {copy.data(), stride, true}, b, beta, c + begin * c_stride,
         c_stride);
  }
}

// Each worker multiplies its own rows or columns of c, whichever there are more of: with few
// workers that is faster than oneDNN's own division, whose workers wait for one another. Parts of
// fewer than kLeastPart are left to oneDNN, which also divides in two dimensions. Parts begin at
// multiples of its widest kernel.
constexpr int64_t kLeastPart = 128;
constexpr int64_t kPartGrain = 48;

TRIMTAB_CLONES void AddSpans(int64_t n, const float* x, const float* y, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = x[i] + y[i];
}

// c [m, n] = what the product is added to, unless c holds it already. Starting from it costs less
// than another pass over the product.
void Prepare(int64_t m, int64_t n, float* c, int64_t c_stride, const GemmTerms& terms) {
  for (int64_t row = 0; row < m; ++row, c += c_stride) {
    const float* addend = terms.addend == nullptr ? nullptr : terms.addend + row * c_stride;
    if (terms.bias == nullptr) {
      std::copy_n(addend, n, c);
    } else if (addend == nullptr) {
      std::copy_n(terms.bias, n, c);
    } else {
      AddSpans(n, terms.bias, addend, c);
    }
  }
}

// What is done with c [m, n] while it is in the cache.
void Finish(int64_t m, int64_t n, float* c, int64_t c_stride, const GemmTerms& terms) {
  constexpr ActivationFunction kGelu = ActivationFunction::kGelu;
  for (int64_t row = 0; row < m; ++row) {
    const int64_t start = row * c_stride;
    if (terms.gelu != nullptr) ActivationForwardCpu(1, kGelu, n, c + start, terms.gelu + start);
    if (terms.gelu_of != nullptr) {
      ActivationBackwardCpu(1, kGelu, n, terms.gelu_of + start, c + start, c + start);
    }
  }
}

// As GemmCpu, for a part of c, on the calling worker alone when others work beside it.
void Part(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, float* c,
          int64_t c_stride, const GemmTerms& terms) {
  const bool prepared = terms.bias != nullptr || terms.addend != nullptr;
  if (prepared) Prepare(m, n, c, c_stride, terms);
  const bool add = terms.accumulate || prepared;
  if (terms.short_sums) {
    ShortSumGemm(m, n, k, a, b, add, c, c_stride);
  } else {
    Sgemm(m, n, k, 1.0f, a, b, add ? 1.0f : 0.0f, c, c_stride);
  }
  if (terms.gelu != nullptr || terms.gelu_of != nullptr) Finish(m, n, c, c_stride, terms);
}

}  // namespace

GemmTerms GemmTerms::From(int64_t row, int64_t column, int64_t n) const {
  const int64_t start = row * n + column;
  GemmTerms part = *this;
  if (bias != nullptr) part.bias += column;
  if (addend != nullptr) part.addend += start;
  if (gelu_of != nullptr) part.gelu_of += start;
  if (gelu != nullptr) part.gelu += start;
  return part;
}

void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_stride) {
  if (RowsCompete(n, k, a)) {
    SgemmOfCopies(m, n, k, alpha, a, b, beta, c, c_stride);
  } else {
    Dnnl(m, n, k, alpha, a, b, beta, c, c_stride);
  }
}

void GemmCpu(int threads, int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
             float* c, const GemmTerms& terms) {
  UseThreads(threads);
  if (threads == 1 || std::max(m, n) / threads < kLeastPart) {
    Part(m, n, k, a, b, c, n, terms);
  } else if (m > n) {
    ParallelFor(threads, m, kPartGrain, [&](int64_t begin, int64_t end) {
      const MatrixView rows = {a.data + begin * (a.transposed ? 1 : a.stride), a.stride,
                               a.transposed};
      Part(end - begin, n, k, rows, b, c + begin * n, n, terms.From(begin, 0, n));
    });
  } else {
    ParallelFor(threads, n, kPartGrain, [&](int64_t begin, int64_t end) {
      const MatrixView columns = {b.data + begin * (b.transposed ? b.stride : 1), b.stride,
                                  b.transposed};
      Part(m, end - begin, k, a, columns, c + begin, n, terms.From(0, begin, n));
    });
  }
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

#include "engine/ops/cpu/gemm/short_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 64;  // at a time

float At(const MatrixView& matrix, int64_t row, int64_t column) {
  return matrix.transposed ? matrix.data[column * matrix.stride + row]
                           : matrix.data[row * matrix.stride + column];
}

/// The value of the lowest bit that is kept beside one as large as `largest`.
inline float LastBit(float largest) {
  constexpr uint32_t kExponent = 0x7f800000;
  const auto power = std::bit_cast<float>(std::bit_cast<uint32_t>(largest) & kExponent);
  return power * (1.0f / (1 << (kShortSumBits - 1)));
}

/// Adds terms x[i] * y[i][j] of `count` rows of y to sums[j], all cut off at the same bit.
TRIMTAB_CLONES void AddTerms(int64_t count, const float* x, const float (*y)[kColumns],
                             float* sums) {
  float largest[kColumns];
#pragma omp simd
  for (int64_t j = 0; j < kColumns; ++j) largest[j] = std::fabs(sums[j]);
  for (int64_t i = 0; i < count; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < kColumns; ++j) {
      const float size = std::fabs(x[i] * y[i][j]);
      largest[j] = size > largest[j] ? size : largest[j];
    }
  }
  float units[kColumns];  // of the last bit; their sums are exact
  float of_units[kColumns];
  float total[kColumns];
#pragma omp simd
  for (int64_t j = 0; j < kColumns; ++j) {
    units[j] = LastBit(largest[j]);
    of_units[j] = units[j] > 0 ? 1.0f / units[j] : 0.0f;
    total[j] = std::trunc(sums[j] * of_units[j]);
  }
  for (int64_t i = 0; i < count; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < kColumns; ++j) total[j] += std::trunc(x[i] * y[i][j] * of_units[j]);
  }
#pragma omp simd
  for (int64_t j = 0; j < kColumns; ++j) sums[j] = total[j] * units[j];
}

}  // namespace

void ShortSumGemm(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
                  bool add, float* c, int64_t c_stride) {
  std::vector<float> sums(static_cast<size_t>(m * kColumns));
  float tile[kShortSumTerms][kColumns];
  float terms[kShortSumTerms];
  for (int64_t column = 0; column < n; column += kColumns) {
    const int64_t columns = std::min(kColumns, n - column);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t first = 0; first < k; first += kShortSumTerms) {
      const int64_t count = std::min(kShortSumTerms, k - first);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t j = 0; j < kColumns; ++j) {
          tile[i][j] = j < columns ? At(b, first + i, column + j) : 0.0f;
        }
      }
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t i = 0; i < count; ++i) terms[i] = At(a, row, first + i);
        AddTerms(count, terms, tile, sums.data() + row * kColumns);
      }
    }
    for (int64_t row = 0; row < m; ++row) {
      float* result = c + row * c_stride + column;
      const float* sum = sums.data() + row * kColumns;
      for (int64_t j = 0; j < columns; ++j) result[j] = (add ? result[j] : 0.0f) + sum[j];
    }
  }
}

}  // namespace trimtab

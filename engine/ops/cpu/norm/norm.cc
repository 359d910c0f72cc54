#include "engine/ops/cpu/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Weight gradients: rows summed before they join the total, which keeps rounding errors small.
constexpr int64_t kRowChunk = 64;

TRIMTAB_CLONES float RowSum(int64_t n, const float* x) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

TRIMTAB_CLONES float RowSquares(int64_t n, const float* x, float mean) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

// y = (x - mean) * rstd * (weight + offset) (+ bias).
TRIMTAB_CLONES void NormRow(int64_t n, const float* x, const float* weight, float offset,
                            const float* bias, float mean, float rstd, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * (weight[i] + offset);
  if (bias == nullptr) return;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
}

// The row's sums that dx needs: over g = dy * (weight + offset) and the normalised xhat.
struct RowSums {
  float g;
  float g_xhat;
};

TRIMTAB_CLONES RowSums GradientSums(int64_t n, const float* dy, const float* x, const float* weight,
                                    float offset, float mean, float rstd) {
  float g_sum = 0;
  float g_xhat_sum = 0;
#pragma omp simd reduction(+ : g_sum, g_xhat_sum)
  for (int64_t i = 0; i < n; ++i) {
    const float g = dy[i] * (weight[i] + offset);
    g_sum += g;
    g_xhat_sum += g * (x[i] - mean) * rstd;
  }
  return {g_sum, g_xhat_sum};
}

// dx += rstd * (g - shift - xhat * slope).
TRIMTAB_CLONES void AddInputGradient(int64_t n, const float* dy, const float* x,
                                     const float* weight, float offset, float mean, float rstd,
                                     float shift, float slope, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float xhat = (x[i] - mean) * rstd;
    dx[i] += rstd * (dy[i] * (weight[i] + offset) - shift - xhat * slope);
  }
}

// Sums over rows of dy * xhat and of dy, for n <= kColumnBlock columns. `mean` may be null (0).
TRIMTAB_CLONES void ColumnSums(int64_t rows, int64_t n, int64_t stride, const float* dy,
                               const float* x, const float* mean, const float* rstd, float* dy_xhat,
                               float* dy_sum) {
  float total[2][kColumnBlock] = {};
  for (int64_t start = 0; start < rows; start += kRowChunk) {
    const int64_t end = std::min(rows, start + kRowChunk);
    float chunk[2][kColumnBlock] = {};
    for (int64_t row = start; row < end; ++row) {
      const float* d = dy + row * stride;
      const float* value = x + row * stride;
      const float center = mean == nullptr ? 0.0f : mean[row];
      const float scale = rstd[row];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        chunk[0][j] += d[j] * (value[j] - center) * scale;
        chunk[1][j] += d[j];
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      total[0][j] += chunk[0][j];
      total[1][j] += chunk[1][j];
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    dy_xhat[j] = total[0][j];
    dy_sum[j] = total[1][j];
  }
}

// `dbias` may be null (RMSNorm), `mean` with it.
void WeightGradients(int threads, const NormShape& shape, const float* dy, const float* x,
                     const float* mean, const float* rstd, float* dweight, float* dbias,
                     bool accumulate) {
  const int64_t columns = shape.columns;
  const int64_t rows = shape.rows;
  ParallelFor(threads, columns, ColumnGrain(rows), [=](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kColumnBlock) {
      const int64_t n = std::min(kColumnBlock, end - j);
      float dy_xhat[kColumnBlock];
      float dy_sum[kColumnBlock];
      ColumnSums(rows, n, columns, dy + j, x + j, mean, rstd, dy_xhat, dy_sum);
      for (int64_t i = 0; i < n; ++i) {
        dweight[j + i] = (accumulate ? dweight[j + i] : 0.0f) + dy_xhat[i];
        if (dbias != nullptr) dbias[j + i] = (accumulate ? dbias[j + i] : 0.0f) + dy_sum[i];
      }
    }
  });
}

float OffsetOf(bool weight_plus_one) { return weight_plus_one ? 1.0f : 0.0f; }

float ReciprocalRoot(double mean_square, double epsilon) {
  return static_cast<float>(1.0 / std::sqrt(mean_square + epsilon));
}

}  // namespace

void LayerNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                         const float* bias, const NormOptions& options, float* y, float* mean,
                         float* rstd) {
  const int64_t n = shape.columns;
  ParallelFor(threads, shape.rows, RowGrain(n), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x + row * n;
      const float center = RowSum(n, in) / static_cast<float>(n);
      const double variance =
          static_cast<double>(RowSquares(n, in, center)) / static_cast<double>(n);
      mean[row] = center;
      rstd[row] = ReciprocalRoot(variance, options.epsilon);
      NormRow(n, in, weight, OffsetOf(options.weight_plus_one), bias, center, rstd[row],
              y + row * n);
    }
  });
}

void LayerNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                          const float* weight, const float* mean, const float* rstd, float* dx,
                          float* dweight, float* dbias, bool accumulate, bool weight_plus_one) {
  const int64_t n = shape.columns;
  const float offset = OffsetOf(weight_plus_one);
  ParallelFor(threads, shape.rows, RowGrain(n), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* d = dy + row * n;
      const float* in = x + row * n;
      const RowSums sums = GradientSums(n, d, in, weight, offset, mean[row], rstd[row]);
      const auto count = static_cast<float>(n);
      AddInputGradient(n, d, in, weight, offset, mean[row], rstd[row], sums.g / count,
                       sums.g_xhat / count, dx + row * n);
    }
  });
  WeightGradients(threads, shape, dy, x, mean, rstd, dweight, dbias, accumulate);
}

void RmsNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                       const NormOptions& options, float* y, float* rstd) {
  const int64_t n = shape.columns;
  ParallelFor(threads, shape.rows, RowGrain(n), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x + row * n;
      const double squares = RowSquares(n, in, 0.0f);
      rstd[row] = ReciprocalRoot(squares / static_cast<double>(n), options.epsilon);
      NormRow(n, in, weight, OffsetOf(options.weight_plus_one), nullptr, 0.0f, rstd[row],
              y + row * n);
    }
  });
}

void RmsNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                        const float* weight, const float* rstd, float* dx, float* dweight,
                        bool accumulate, bool weight_plus_one) {
  const int64_t n = shape.columns;
  const float offset = OffsetOf(weight_plus_one);
  ParallelFor(threads, shape.rows, RowGrain(n), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* d = dy + row * n;
      const float* in = x + row * n;
      const RowSums sums = GradientSums(n, d, in, weight, offset, 0.0f, rstd[row]);
      AddInputGradient(n, d, in, weight, offset, 0.0f, rstd[row], 0.0f,
                       sums.g_xhat / static_cast<float>(n), dx + row * n);
    }
  });
  WeightGradients(threads, shape, dy, x, nullptr, rstd, dweight, nullptr, accumulate);
}

}  // namespace trimtab

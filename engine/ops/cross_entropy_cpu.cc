#include "engine/ops/cross_entropy_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

// Columns summed in fp32 before they join the row's sum in double.
constexpr int64_t kSumChunk = 4096;

TRIMTAB_CLONES float SpanMax(int64_t n, const float* x) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < n; ++i) highest = highest < x[i] ? x[i] : highest;
  return highest;
}

TRIMTAB_CLONES float SpanExpSum(int64_t n, const float* x, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += Exp(x[i] - shift);
  return sum;
}

TRIMTAB_CLONES void SpanScaledExp(int64_t n, float shift, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = factor * Exp(x[i] - shift);
}

// The same, times the derivative of a soft cap that gave x.
TRIMTAB_CLONES void SpanCappedExp(int64_t n, float shift, float factor, const SoftCap& soft_cap,
                                  float* x) {
  const SoftCap f = soft_cap;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = factor * Exp(x[i] - shift) * f.Derivative(x[i]);
}

// Column of `target` among the used ones, or -1.
int64_t TargetColumn(const LogitsShape& shape, int32_t target) {
  const int64_t column = target - shape.first_id;
  return column >= 0 && column < shape.used ? column : -1;
}

}  // namespace

void CrossEntropyMaxCpu(int threads, const LogitsShape& shape, const float* logits,
                        float* row_max) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      row_max[row] = SpanMax(shape.used, logits + row * shape.columns);
    }
  });
}

void CrossEntropySumCpu(int threads, const LogitsShape& shape, const float* logits,
                        const int32_t* targets, const float* row_max, float* sums) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = logits + row * shape.columns;
      double sum = 0;
      for (int64_t start = 0; start < shape.used; start += kSumChunk) {
        sum += SpanExpSum(std::min(kSumChunk, shape.used - start), x + start, row_max[row]);
      }
      const int64_t column = TargetColumn(shape, targets[row]);
      sums[row] = static_cast<float>(sum);
      sums[shape.rows + row] = column < 0 ? 0.0f : x[column] - row_max[row];
    }
  });
}

void CrossEntropyGradCpu(int threads, const LogitsShape& shape, const int32_t* targets,
                         const float* row_max, const float* sums, float scale,
                         const SoftCap& soft_cap, float* logits, float* losses) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* x = logits + row * shape.columns;
      const int64_t column = TargetColumn(shape, targets[row]);
      const float slope = column < 0 ? 0.0f : soft_cap.Derivative(x[column]);
      if (soft_cap.identity()) {
        SpanScaledExp(shape.used, row_max[row], scale / sums[row], x);
      } else {
        SpanCappedExp(shape.used, row_max[row], scale / sums[row], soft_cap, x);
      }
      std::fill(x + shape.used, x + shape.columns, 0.0f);
      if (column >= 0) x[column] -= scale * slope;
      losses[row] = std::log(sums[row]) - sums[shape.rows + row];
    }
  });
}

}  // namespace trimtab

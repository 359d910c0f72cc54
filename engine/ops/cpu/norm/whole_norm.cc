#include "engine/ops/cpu/norm/whole_norm.h"

#include <algorithm>
#include <cmath>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Columns that are added up in fp32 before they join a sum in fp64.
constexpr int64_t kRun = 256;

TRIMTAB_CLONES float SquaresOfRun(int64_t n, const float* x) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

TRIMTAB_CLONES void NormRun(int64_t n, const float* x, const float* weight, float offset,
                            float rstd, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * (weight[i] + offset);
}

TRIMTAB_CLONES float SlopeOfRun(int64_t n, const float* dy, const float* x, const float* weight,
                                float offset, float rstd) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += dy[i] * (weight[i] + offset) * (x[i] * rstd);
  return sum;
}

TRIMTAB_CLONES void WholeInputGradient(int64_t n, const float* x, const float* weight, float offset,
                                       float rstd, float slope, float* dy) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dy[i] = rstd * (dy[i] * (weight[i] + offset) - x[i] * rstd * slope);
  }
}

TRIMTAB_CLONES void AddWholeWeightGradient(int64_t n, const float* dy, const float* x, float rstd,
                                           float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += dy[i] * (x[i] * rstd);
}

float WholeOffset(const NormOptions& options) { return options.weight_plus_one ? 1.0f : 0.0f; }

float RstdOf(float squares, int64_t count, const NormOptions& options) {
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(squares) / static_cast<double>(count) + options.epsilon));
}

// The sum over `columns` of what `run` gives for each run of them.
template <typename Run>
float SumOfRuns(int64_t columns, const Run& run) {
  double sum = 0;
  for (int64_t i = 0; i < columns; i += kRun) sum += run(i, std::min(kRun, columns - i));
  return static_cast<float>(sum);
}

// Calls `each` for every token and part of it.
template <typename Each>
void ForEachPart(int threads, const AttentionShape& s, const Each& each) {
  ParallelFor(threads, s.tokens(), RowGrain(s.qkv_size()), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (size_t part = 0; part < 2; ++part) each(token, part);
    }
  });
}

}  // namespace

void WholeNormSquaresCpu(int threads, const AttentionShape& shape, const float* qkv,
                         float* squares) {
  const int64_t queries = shape.heads * shape.head_size;
  ForEachPart(threads, shape, [&](int64_t token, size_t part) {
    const float* x = qkv + token * shape.qkv_size() + (part == 0 ? 0 : queries);
    squares[2 * token + static_cast<int64_t>(part)] =
        SumOfRuns(part == 0 ? queries : shape.kv_heads * shape.head_size,
                  [x](int64_t i, int64_t n) { return SquaresOfRun(n, x + i); });
  });
}

void WholeNormForwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                         const WholeNormParts& parts, const NormOptions& options,
                         const float* squares, float* out) {
  const int64_t values = shape.kv_heads * shape.head_size;
  ForEachPart(threads, shape, [&](int64_t token, size_t part) {
    const WholeNormPart& p = parts[part];
    const int64_t at = token * shape.qkv_size() + p.begin;
    const float rstd = RstdOf(squares[2 * token + static_cast<int64_t>(part)], p.count, options);
    NormRun(p.columns, qkv + at, p.weight, WholeOffset(options), rstd, out + at);
    if (part == 1) std::copy_n(qkv + at + p.columns, values, out + at + p.columns);
  });
}

void WholeNormSlopesCpu(int threads, const AttentionShape& shape, const float* qkv,
                        const WholeNormParts& parts, const NormOptions& options,
                        const float* squares, const float* dqkv, float* slopes, float* dweights) {
  const float offset = WholeOffset(options);
  ForEachPart(threads, shape, [&](int64_t token, size_t part) {
    const WholeNormPart& p = parts[part];
    const int64_t at = token * shape.qkv_size() + p.begin;
    float& slope = slopes[2 * token + static_cast<int64_t>(part)];
    const float rstd = RstdOf(squares[2 * token + static_cast<int64_t>(part)], p.count, options);
    slope = SumOfRuns(p.columns, [&](int64_t i, int64_t n) {
      return SlopeOfRun(n, dqkv + at + i, qkv + at + i, p.weight + i, offset, rstd);
    });
  });
  const int64_t columns = parts[0].columns + parts[1].columns;
  ParallelFor(threads, columns, ColumnGrain(shape.tokens()), [&](int64_t begin, int64_t end) {
    std::fill(dweights + begin, dweights + end, 0.0f);
    for (int64_t token = 0; token < shape.tokens(); ++token) {
      for (size_t part = 0; part < 2; ++part) {
        const WholeNormPart& p = parts[part];
        const int64_t first = std::max(begin, p.begin);
        const int64_t last = std::min(end, p.begin + p.columns);
        if (first >= last) continue;
        const int64_t at = token * shape.qkv_size() + first;
        const float rstd =
            RstdOf(squares[2 * token + static_cast<int64_t>(part)], p.count, options);
        AddWholeWeightGradient(last - first, dqkv + at, qkv + at, rstd, dweights + first);
      }
    }
  });
}

void WholeNormBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                          const WholeNormParts& parts, const NormOptions& options,
                          const float* squares, const float* slopes, float* dqkv) {
  ForEachPart(threads, shape, [&](int64_t token, size_t part) {
    const WholeNormPart& p = parts[part];
    const int64_t at = token * shape.qkv_size() + p.begin;
    const int64_t sum = 2 * token + static_cast<int64_t>(part);
    WholeInputGradient(p.columns, qkv + at, p.weight, WholeOffset(options),
                       RstdOf(squares[sum], p.count, options),
                       slopes[sum] / static_cast<float>(p.count), dqkv + at);
  });
}

}  // namespace trimtab

#include "engine/ops/cpu/norm/head_norm.h"

#include <algorithm>
#include <cmath>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES float Dot(int64_t n, const float* x, const float* y) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

TRIMTAB_CLONES void NormHead(int64_t n, const float* x, const float* weight, float offset,
                             float rstd, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * (weight[i] + offset);
}

// The sum of dy * (weight + offset) * xhat.
TRIMTAB_CLONES float GradientSum(int64_t n, const float* dy, const float* x, const float* weight,
                                 float offset, float rstd) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += dy[i] * (weight[i] + offset) * (x[i] * rstd);
  return sum;
}

// dy becomes rstd * (dy * (weight + offset) - xhat * slope).
TRIMTAB_CLONES void InputGradient(int64_t n, const float* x, const float* weight, float offset,
                                  float rstd, float slope, float* dy) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dy[i] = rstd * (dy[i] * (weight[i] + offset) - x[i] * rstd * slope);
  }
}

TRIMTAB_CLONES void AddWeightGradient(int64_t n, const float* dy, const float* x, float rstd,
                                      float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += dy[i] * (x[i] * rstd);
}

float OffsetOf(bool weight_plus_one) { return weight_plus_one ? 1.0f : 0.0f; }

// dweights of one kind of heads, [first_head, end_head), for columns [begin, begin + n). The sum of
// a token joins the total as one: that keeps rounding errors small.
void WeightGradients(const AttentionShape& s, int64_t first_head, int64_t end_head, int64_t begin,
                     int64_t n, const float* qkv, const float* rstd, const float* dqkv,
                     float* dweight) {
  std::fill(dweight + begin, dweight + begin + n, 0.0f);
  for (int64_t token = 0; token < s.tokens(); ++token) {
    float sum[kColumnBlock] = {};
    for (int64_t head = first_head; head < end_head; ++head) {
      const int64_t at = token * s.qkv_size() + head * s.head_size + begin;
      AddWeightGradient(n, dqkv + at, qkv + at, rstd[token * (s.heads + s.kv_heads) + head], sum);
    }
    for (int64_t i = 0; i < n; ++i) dweight[begin + i] += sum[i];
  }
}

}  // namespace

void HeadNormForwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                        const float* query_weight, const float* key_weight,
                        const NormOptions& options, float* out, float* rstd) {
  const int64_t n = shape.head_size;
  const int64_t normed = shape.heads + shape.kv_heads;
  const float offset = OffsetOf(options.weight_plus_one);
  ParallelFor(threads, shape.tokens(), RowGrain(shape.qkv_size()), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* x = qkv + token * shape.qkv_size();
      float* y = out + token * shape.qkv_size();
      for (int64_t head = 0; head < normed; ++head) {
        const double squares = Dot(n, x + head * n, x + head * n);
        const auto scale =
            static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(n) + options.epsilon));
        rstd[token * normed + head] = scale;
        NormHead(n, x + head * n, head < shape.heads ? query_weight : key_weight, offset, scale,
                 y + head * n);
      }
      std::copy_n(x + normed * n, shape.kv_heads * n, y + normed * n);
    }
  });
}

void HeadNormBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                         const float* query_weight, const float* key_weight, const float* rstd,
                         bool weight_plus_one, float* dqkv, float* dweights) {
  const int64_t n = shape.head_size;
  const int64_t normed = shape.heads + shape.kv_heads;
  const float offset = OffsetOf(weight_plus_one);
  ParallelFor(threads, n, ColumnGrain(shape.tokens() * normed), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kColumnBlock) {
      const int64_t columns = std::min(kColumnBlock, end - j);
      WeightGradients(shape, 0, shape.heads, j, columns, qkv, rstd, dqkv, dweights);
      WeightGradients(shape, shape.heads, normed, j, columns, qkv, rstd, dqkv, dweights + n);
    }
  });
  ParallelFor(threads, shape.tokens(), RowGrain(shape.qkv_size()), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t head = 0; head < normed; ++head) {
        const int64_t at = token * shape.qkv_size() + head * n;
        const float* weight = head < shape.heads ? query_weight : key_weight;
        const float scale = rstd[token * normed + head];
        const float sum = GradientSum(n, dqkv + at, qkv + at, weight, offset, scale);
        InputGradient(n, qkv + at, weight, offset, scale, sum / static_cast<float>(n), dqkv + at);
      }
    }
  });
}

}  // namespace trimtab

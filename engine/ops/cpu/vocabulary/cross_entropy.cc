#include "engine/ops/cpu/vocabulary/cross_entropy.h"

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
  float highest = std::numeric_limits<float>::lowest();
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

// x = exp(x - shift); returns their sum.
TRIMTAB_CLONES float SpanExp(int64_t n, float shift, float* x) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    x[i] = Exp(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

// The same, but for x, which is also times the derivative of a soft cap that gave it.
TRIMTAB_CLONES float SpanCappedExp(int64_t n, float shift, const SoftCap& soft_cap, float* x) {
  const SoftCap f = soft_cap;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float weight = Exp(x[i] - shift);
    x[i] = weight * f.Derivative(x[i]);
    sum += weight;
  }
  return sum;
}

TRIMTAB_CLONES void SpanScale(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// add(start, n) over all used columns in order, in double.
template <typename Add>
float SumInChunks(int64_t used, const Add& add) {
  double sum = 0;
  for (int64_t start = 0; start < used; start += kSumChunk) {
    sum += add(start, std::min(kSumChunk, used - start));
  }
  return static_cast<float>(sum);
}

// What is left to do for a row, whose logits this turns into exp(logit - shift), times the
// derivative of the soft cap.
class RowGradient {
 public:
  RowGradient(const LogitsShape& shape, int32_t target, const SoftCap& soft_cap, float shift,
              float* x)
      : shape_(shape), column_(target - shape.first_id), x_(x) {
    const bool here = column_ >= 0 && column_ < shape.used;
    if (!here) column_ = -1;
    if (here) target_logit_ = x[column_];
    if (here) slope_ = soft_cap.Derivative(x[column_]);
    sum_ = SumInChunks(shape.used, [&](int64_t start, int64_t n) {
      return soft_cap.identity() ? SpanExp(n, shift, x + start)
                                 : SpanCappedExp(n, shift, soft_cap, x + start);
    });
  }

  /// Of the used columns: exp(logit - shift).
  float sum() const { return sum_; }
  /// The target's; 0 where it is in another shard.
  float target_logit() const { return target_logit_; }

  /// The gradient, where `whole_sum` is that of all shards.
  void Write(float scale, float whole_sum) const {
    SpanScale(shape_.used, scale / whole_sum, x_);
    std::fill(x_ + shape_.used, x_ + shape_.columns, 0.0f);
    if (column_ >= 0) x_[column_] -= scale * slope_;
  }

 private:
  const LogitsShape& shape_;
  int64_t column_;
  float* x_;
  float target_logit_ = 0;
  float slope_ = 0;
  float sum_ = 0;
};

}  // namespace

void CrossEntropyCpu(int threads, const LogitsShape& shape, const int32_t* targets, float scale,
                     const SoftCap& soft_cap, float* logits, float* losses) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      // A row stays in the cache from its first pass to its last.
      float* x = logits + row * shape.columns;
      const float largest = SpanMax(shape.used, x);
      const RowGradient gradient(shape, targets[row], soft_cap, largest, x);
      const bool none = targets[row] < 0;
      gradient.Write(none ? 0.0f : scale, gradient.sum());
      losses[row] = none ? 0.0f : std::log(gradient.sum()) - (gradient.target_logit() - largest);
    }
  });
}

void CrossEntropyPartsCpu(int threads, const LogitsShape& shape, const float* logits,
                          const int32_t* targets, float* parts) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = logits + row * shape.columns;
      const float largest = SpanMax(shape.used, x);
      const int64_t column = targets[row] - shape.first_id;
      parts[row] = largest;
      parts[shape.rows + row] = SumInChunks(
          shape.used, [&](int64_t start, int64_t n) { return SpanExpSum(n, x + start, largest); });
      parts[2 * shape.rows + row] = column >= 0 && column < shape.used ? x[column] : 0.0f;
    }
  });
}

void CrossEntropyGradCpu(int threads, const LogitsShape& shape, int64_t shards,
                         const int32_t* targets, const float* parts, float scale,
                         const SoftCap& soft_cap, float* logits, float* losses) {
  ParallelFor(threads, shape.rows, RowGrain(shape.columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const LossParts all = JoinLossParts(parts + row, shards, shape.rows);
      const RowGradient gradient(shape, targets[row], soft_cap, all.largest,
                                 logits + row * shape.columns);
      const bool none = targets[row] < 0;
      gradient.Write(none ? 0.0f : scale, all.sum);
      losses[row] = none ? 0.0f : std::log(all.sum) - (all.target - all.largest);
    }
  });
}

}  // namespace trimtab

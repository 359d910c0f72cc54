#include "engine/ops/cpu/attention/attention_sink.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void ScaleRow(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

TRIMTAB_CLONES float Dot(int64_t n, const float* x, const float* y) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

void AttentionSinkCpu(int threads, const AttentionShape& s, const float* sinks, float* out,
                      float* log_sum_exp) {
  ParallelFor(threads, s.rows.batch * s.heads, RowGrain(s.rows.sequence * s.value_size()),
              [&](int64_t begin, int64_t end) {
                for (int64_t pair = begin; pair < end; ++pair) {
                  const int64_t head = pair % s.heads;
                  const int64_t first = pair / s.heads * s.rows.sequence;
                  for (int64_t t = 0; t < s.rows.sequence; ++t) {
                    const AttentionMerge merge =
                        MergeAttention(log_sum_exp[pair * s.rows.sequence + t], sinks[head]);
                    log_sum_exp[pair * s.rows.sequence + t] = merge.log_sum_exp;
                    ScaleRow(s.value_size(), merge.keep,
                             out + (first + t) * s.out_size() + head * s.value_size());
                  }
                }
              });
}

void AttentionSinkBackwardCpu(int threads, const AttentionShape& s, const float* sinks,
                              const float* out, const float* log_sum_exp, const float* dout,
                              float* dsinks, bool accumulate) {
  // One worker per head: its sum is added up in one fixed order.
  ParallelFor(
      threads, s.heads, RowGrain(s.tokens() * s.value_size()), [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head) {
          double sum = 0;
          for (int64_t token = 0; token < s.tokens(); ++token) {
            const int64_t row = (token / s.rows.sequence * s.heads + head) * s.rows.sequence;
            const float share = Exp(sinks[head] - log_sum_exp[row + token % s.rows.sequence]);
            const int64_t at = token * s.out_size() + head * s.value_size();
            sum += static_cast<double>(share * Dot(s.value_size(), out + at, dout + at));
          }
          dsinks[head] = (accumulate ? dsinks[head] : 0.0f) - static_cast<float>(sum);
        }
      });
}

}  // namespace trimtab

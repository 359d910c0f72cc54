#include "engine/ops/cpu/optimizer/newton_schulz.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/optimizer/update_state.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void QuinticSpan(const QuinticFactors& factors, int64_t n, const float* gram,
                                float* squared) {
  const QuinticFactors f = factors;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) squared[i] = f.b * gram[i] + f.c * squared[i];
}

/// Widens elements [begin, end) of x a block at a time, has them changed, and rounds them again.
template <typename Change>
void ForEachBlock(const Tensor& x, int64_t begin, int64_t end, const Change& change) {
  float values[kConvertBlock];
  for (int64_t i = begin; i < end; i += kConvertBlock) {
    const int64_t n = std::min(kConvertBlock, end - i);
    LoadValues(x, i, n, values);
    change(i, n, values);
    RoundSpan(x.dtype(), n, values, ElementAt(x.dtype(), x.raw(), i));
  }
}

}  // namespace

void NormalizeCpu(int threads, float squares, float epsilon, Tensor& x) {
  const float factor = NormFactor(squares, epsilon);
  ParallelFor(threads, x.numel(), kSpanGrain, [&](int64_t begin, int64_t end) {
    ForEachBlock(x, begin, end,
                 [&](int64_t, int64_t n, float* values) { ScaleSpan(n, factor, values); });
  });
}

void QuinticCpu(int threads, const QuinticFactors& factors, const Tensor& gram, Tensor& squared) {
  const int64_t rows = squared.dim(0);
  ParallelFor(threads, squared.numel(), kSpanGrain, [&](int64_t begin, int64_t end) {
    ForEachBlock(squared, begin, end, [&](int64_t first, int64_t n, float* values) {
      float other[kConvertBlock];
      LoadValues(gram, first, n, other);
      QuinticSpan(factors, n, other, values);
      // The diagonal's elements are rows + 1 apart.
      const int64_t next = (first + rows) / (rows + 1) * (rows + 1);
      for (int64_t i = next; i < first + n; i += rows + 1) values[i - first] += factors.a;
    });
  });
}

}  // namespace trimtab

#include "engine/ops/adamw_cpu.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void AdamWSpan(const AdamWCoefficients& coefficients, int64_t n,
                              const float* gradient, float* parameter, float* m, float* v) {
  const AdamWCoefficients c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) AdamWElement(c, gradient[i], parameter[i], m[i], v[i]);
}

}  // namespace

void AdamWCpu(int threads, const AdamWCoefficients& coefficients, int64_t n, const float* gradient,
              float* parameter, float* m, float* v) {
  ParallelFor(threads, n, kSpanGrain, [&](int64_t begin, int64_t end) {
    AdamWSpan(coefficients, end - begin, gradient + begin, parameter + begin, m + begin, v + begin);
  });
}

}  // namespace trimtab

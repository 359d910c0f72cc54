#include "engine/ops/cpu/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/optimizer/update_state.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void AdamWSpan(const AdamWCoefficients& coefficients, int64_t n,
                              const float* gradient, float* parameter, float* m, float* v) {
  const AdamWCoefficients c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) AdamWElement(c, gradient[i], parameter[i], m[i], v[i]);
}

void AdamWBlock(const AdamWCoefficients& coefficients, const Tensor& gradient,
                const AdamWState& state, int64_t begin, int64_t n) {
  float g[kConvertBlock];
  float master[kConvertBlock];
  float m[kConvertBlock];
  float v[kConvertBlock];
  LoadValues(gradient, begin, n, g);
  LoadMaster({state.weight, state.master}, begin, n, master);
  LoadMoments({state.m, state.m_scale}, MomentSign::kEither, begin, n, m);
  LoadMoments({state.v, state.v_scale}, MomentSign::kNever, begin, n, v);
  AdamWSpan(coefficients, n, g, master, m, v);
  StoreMaster({state.weight, state.master}, begin, n, master);
  StoreMoments({state.m, state.m_scale}, MomentSign::kEither, begin, n, m);
  StoreMoments({state.v, state.v_scale}, MomentSign::kNever, begin, n, v);
}

}  // namespace

void AdamWCpu(int threads, const AdamWCoefficients& coefficients, const Tensor& gradient,
              const AdamWState& state) {
  const bool all_fp32 = state.weight.dtype() == DType::kF32 && state.m.dtype() == DType::kF32 &&
                        gradient.dtype() == DType::kF32;
  ParallelFor(threads, gradient.numel(), kSpanGrain, [&](int64_t begin, int64_t end) {
    if (all_fp32) {
      AdamWSpan(coefficients, end - begin, gradient.f32() + begin, state.weight.f32() + begin,
                state.m.f32() + begin, state.v.f32() + begin);
      return;
    }
    for (int64_t i = begin; i < end; i += kConvertBlock) {
      AdamWBlock(coefficients, gradient, state, i, std::min(kConvertBlock, end - i));
    }
  });
}

}  // namespace trimtab

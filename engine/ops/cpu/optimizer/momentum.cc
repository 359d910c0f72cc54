#include "engine/ops/cpu/optimizer/momentum.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/cpu/optimizer/update_state.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

/// Gradients become updates.
TRIMTAB_CLONES void MomentumSpan(const MomentumCoefficients& coefficients, int64_t n,
                                 float* gradient, float* momentum) {
  const MomentumCoefficients c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) gradient[i] = MomentumElement(c, gradient[i], momentum[i]);
}

TRIMTAB_CLONES void MoveSpan(const MomentumCoefficients& coefficients, int64_t n,
                             const float* update, float* parameter) {
  const MomentumCoefficients c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) parameter[i] = parameter[i] * c.keep - c.step_size * update[i];
}

void MomentumBlock(const MomentumCoefficients& coefficients, const Tensor& gradient,
                   const MomentumState& state, int64_t begin, int64_t n) {
  float update[kConvertBlock];
  float values[kConvertBlock];
  LoadValues(gradient, begin, n, update);
  if (state.momentum.values.defined()) {
    LoadMoments(state.momentum, MomentSign::kEither, begin, n, values);
    MomentumSpan(coefficients, n, update, values);
    StoreMoments(state.momentum, MomentSign::kEither, begin, n, values);
  }
  if (state.update.defined()) {
    RoundSpan(state.update.dtype(), n, update,
              ElementAt(state.update.dtype(), state.update.raw(), begin));
  }
  if (!state.weight.weight.defined()) return;
  LoadMaster(state.weight, begin, n, values);
  MoveSpan(coefficients, n, update, values);
  StoreMaster(state.weight, begin, n, values);
}

}  // namespace

void MomentumCpu(int threads, const MomentumCoefficients& coefficients, const Tensor& gradient,
                 const MomentumState& state) {
  ParallelFor(threads, gradient.numel(), kSpanGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kConvertBlock) {
      MomentumBlock(coefficients, gradient, state, i, std::min(kConvertBlock, end - i));
    }
  });
}

}  // namespace trimtab

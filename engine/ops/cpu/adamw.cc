#include "engine/ops/cpu/adamw.h"

#include <algorithm>
#include <cmath>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/convert.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

static_assert(kConvertBlock % kMomentBlock == 0 && kSpanGrain % kConvertBlock == 0);

TRIMTAB_CLONES void AdamWSpan(const AdamWCoefficients& coefficients, int64_t n,
                              const float* gradient, float* parameter, float* m, float* v) {
  const AdamWCoefficients c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) AdamWElement(c, gradient[i], parameter[i], m[i], v[i]);
}

TRIMTAB_CLONES void JoinSpan(int64_t n, const uint16_t* weight, const uint16_t* remainder,
                             float* master) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) master[i] = MasterOfParts(weight[i], remainder[i]);
}

TRIMTAB_CLONES void SplitSpan(int64_t n, const float* master, uint16_t* weight,
                              uint16_t* remainder) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    weight[i] = WeightBitsOfMaster(master[i]);
    remainder[i] = RemainderOfMaster(master[i]);
  }
}

TRIMTAB_CLONES float Largest(int64_t n, const float* x) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = largest < std::abs(x[i]) ? std::abs(x[i]) : largest;
  return largest;
}

/// Elements [begin, begin + n) of a tensor.
void* At(const Tensor& tensor, int64_t begin) {
  return ElementAt(tensor.dtype(), tensor.raw(), begin);
}

/// Moments in whatever they are stored: of one block, n <= kConvertBlock.
void LoadMoments(const Tensor& moments, const Tensor& scales, int64_t begin, int64_t n,
                 float* values) {
  WidenSpan(moments.dtype(), n, At(moments, begin), values);
  if (moments.dtype() != DType::kF16) return;
  for (int64_t i = 0; i < n; i += kMomentBlock) {
    const float scale = scales.f32()[(begin + i) / kMomentBlock];
    ScaleSpan(std::min(kMomentBlock, n - i), scale, values + i);
  }
}

void StoreMoments(const Tensor& moments, const Tensor& scales, int64_t begin, int64_t n,
                  float* values) {
  if (moments.dtype() == DType::kF16) {
    for (int64_t i = 0; i < n; i += kMomentBlock) {
      const int64_t count = std::min(kMomentBlock, n - i);
      float inverse = 0;
      MomentScale(Largest(count, values + i), scales.f32()[(begin + i) / kMomentBlock], inverse);
      ScaleSpan(count, inverse, values + i);
    }
  }
  RoundSpan(moments.dtype(), n, values, At(moments, begin));
}

void LoadMaster(const AdamWState& state, int64_t begin, int64_t n, float* values) {
  if (!state.master.defined() || state.master.dtype() == DType::kF32) {
    const Tensor& exact = state.master.defined() ? state.master : state.weight;
    WidenSpan(DType::kF32, n, At(exact, begin), values);
    return;
  }
  JoinSpan(n, state.weight.u16() + begin, state.master.u16() + begin, values);
}

void StoreMaster(const AdamWState& state, int64_t begin, int64_t n, const float* values) {
  if (state.master.defined() && state.master.dtype() == DType::kU16) {
    SplitSpan(n, values, state.weight.u16() + begin, state.master.u16() + begin);
    return;
  }
  if (state.master.defined()) RoundSpan(DType::kF32, n, values, At(state.master, begin));
  RoundSpan(state.weight.dtype(), n, values, At(state.weight, begin));
}

void AdamWBlock(const AdamWCoefficients& coefficients, const Tensor& gradient,
                const AdamWState& state, int64_t begin, int64_t n) {
  float g[kConvertBlock];
  float master[kConvertBlock];
  float m[kConvertBlock];
  float v[kConvertBlock];
  WidenSpan(gradient.dtype(), n, At(gradient, begin), g);
  LoadMaster(state, begin, n, master);
  LoadMoments(state.m, state.m_scale, begin, n, m);
  LoadMoments(state.v, state.v_scale, begin, n, v);
  AdamWSpan(coefficients, n, g, master, m, v);
  StoreMaster(state, begin, n, master);
  StoreMoments(state.m, state.m_scale, begin, n, m);
  StoreMoments(state.v, state.v_scale, begin, n, v);
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

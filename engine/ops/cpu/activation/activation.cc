#include "engine/ops/cpu/activation/activation.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// The loops, for one function each. Inlined into the clones below.

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE void ForwardLoop(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Activate<kFunction>(x[i]);
}

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE void BackwardLoop(int64_t n, const float* x, const float* dy, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * ActivateDerivative<kFunction>(x[i]);
}

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE void GatedForwardLoop(int64_t n, const float* gate, const float* up, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    y[i] = Activate<kFunction>(gate[i]) * GateFactor<kFunction>(up[i]);
}

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE void GatedBackwardLoop(int64_t n, const float* gate, const float* up,
                                           const float* dy, float* dgate, float* dup) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float d = dy[i];
    const float g = gate[i];
    const float u = up[i];
    dgate[i] = d * GateFactor<kFunction>(u) * ActivateDerivative<kFunction>(g);
    dup[i] = d * GateFactorDerivative<kFunction>(u) * Activate<kFunction>(g);
  }
}

// A lambda would not inherit the target of the clone around it, so each has a switch of its own.
#define TRIMTAB_FOR_FUNCTION(loop, ...)                            \
  switch (function) {                                              \
    case ActivationFunction::kGelu:                                \
      return loop<ActivationFunction::kGelu>(__VA_ARGS__);         \
    case ActivationFunction::kGeluErf:                             \
      return loop<ActivationFunction::kGeluErf>(__VA_ARGS__);      \
    case ActivationFunction::kRelu:                                \
      return loop<ActivationFunction::kRelu>(__VA_ARGS__);         \
    case ActivationFunction::kSquaredRelu:                         \
      return loop<ActivationFunction::kSquaredRelu>(__VA_ARGS__);  \
    case ActivationFunction::kSilu:                                \
      return loop<ActivationFunction::kSilu>(__VA_ARGS__);         \
    case ActivationFunction::kClampedSwish:                        \
      return loop<ActivationFunction::kClampedSwish>(__VA_ARGS__); \
  }

TRIMTAB_CLONES void ForwardSpan(ActivationFunction function, int64_t n, const float* x,
                                float* y){TRIMTAB_FOR_FUNCTION(ForwardLoop, n, x, y)}

TRIMTAB_CLONES
    void BackwardSpan(ActivationFunction function, int64_t n, const float* x, const float* dy,
                      float* dx){TRIMTAB_FOR_FUNCTION(BackwardLoop, n, x, dy, dx)}

TRIMTAB_CLONES
    void GatedForwardSpan(ActivationFunction function, int64_t n, const float* gate,
                          const float* up,
                          float* y){TRIMTAB_FOR_FUNCTION(GatedForwardLoop, n, gate, up, y)}

TRIMTAB_CLONES void GatedBackwardSpan(ActivationFunction function, int64_t n, const float* gate,
                                      const float* up, const float* dy, float* dgate, float* dup) {
  TRIMTAB_FOR_FUNCTION(GatedBackwardLoop, n, gate, up, dy, dgate, dup)
}

#undef TRIMTAB_FOR_FUNCTION

}  // namespace

void ActivationForwardCpu(int threads, ActivationFunction function, int64_t n, const float* x,
                          float* y) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    ForwardSpan(function, end - begin, x + begin, y + begin);
  });
}

void ActivationBackwardCpu(int threads, ActivationFunction function, int64_t n, const float* x,
                           const float* dy, float* dx) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    BackwardSpan(function, end - begin, x + begin, dy + begin, dx + begin);
  });
}

void GatedActivationForwardCpu(int threads, ActivationFunction function, int64_t rows,
                               int64_t columns, const float* gate_up, float* y) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * columns;
      GatedForwardSpan(function, columns, gate, gate + columns, y + row * columns);
    }
  });
}

void GatedActivationBackwardCpu(int threads, ActivationFunction function, int64_t rows,
                                int64_t columns, const float* gate_up, const float* dy,
                                float* dgate_up) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * columns;
      float* dgate = dgate_up + row * 2 * columns;
      GatedBackwardSpan(function, columns, gate, gate + columns, dy + row * columns, dgate,
                        dgate + columns);
    }
  });
}

}  // namespace trimtab

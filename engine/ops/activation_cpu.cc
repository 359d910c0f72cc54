#include "engine/ops/activation_cpu.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void GeluForwardSpan(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Gelu(x[i]);
}

TRIMTAB_CLONES void GeluBackwardSpan(int64_t n, const float* x, const float* dy, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * GeluDerivative(x[i]);
}

TRIMTAB_CLONES void SwiGluForwardSpan(int64_t n, const float* gate, const float* up, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(gate[i]) * up[i];
}

TRIMTAB_CLONES void SwiGluBackwardSpan(int64_t n, const float* gate, const float* up,
                                       const float* dy, float* dgate, float* dup) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float d = dy[i];
    const float g = gate[i];
    dgate[i] = d * up[i] * SiluDerivative(g);
    dup[i] = d * Silu(g);
  }
}

}  // namespace

void GeluForwardCpu(int threads, int64_t n, const float* x, float* y) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    GeluForwardSpan(end - begin, x + begin, y + begin);
  });
}

void GeluBackwardCpu(int threads, int64_t n, const float* x, const float* dy, float* dx) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    GeluBackwardSpan(end - begin, x + begin, dy + begin, dx + begin);
  });
}

void SwiGluForwardCpu(int threads, int64_t rows, int64_t columns, const float* gate_up, float* y) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * columns;
      SwiGluForwardSpan(columns, gate, gate + columns, y + row * columns);
    }
  });
}

void SwiGluBackwardCpu(int threads, int64_t rows, int64_t columns, const float* gate_up,
                       const float* dy, float* dgate_up) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * columns;
      float* dgate = dgate_up + row * 2 * columns;
      SwiGluBackwardSpan(columns, gate, gate + columns, dy + row * columns, dgate, dgate + columns);
    }
  });
}

}  // namespace trimtab

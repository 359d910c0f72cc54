#include "engine/ops/cpu/activation/gate_rows.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void Gate(int64_t rows, int64_t columns, const float* gate, const float* x,
                         float* y) {
  for (int64_t row = 0; row < rows; ++row) {
    const float factor = Sigmoid(gate[row]);
    const float* from = x + row * columns;
    float* to = y + row * columns;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] = factor * from[i];
  }
}

TRIMTAB_CLONES void GateBackward(int64_t rows, int64_t columns, const float* gate, const float* x,
                                 const float* dy, float* dx, float* dgate) {
  for (int64_t row = 0; row < rows; ++row) {
    const float factor = Sigmoid(gate[row]);
    const int64_t first = row * columns;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = first; i < first + columns; ++i) {
      dot += dy[i] * x[i];
      dx[i] = factor * dy[i];
    }
    dgate[row] = factor * (1.0f - factor) * dot;
  }
}

}  // namespace

void GateRowsCpu(int threads, int64_t rows, int64_t columns, const float* gate, const float* x,
                 float* y) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    Gate(end - begin, columns, gate + begin, x + begin * columns, y + begin * columns);
  });
}

void GateRowsBackwardCpu(int threads, int64_t rows, int64_t columns, const float* gate,
                         const float* x, const float* dy, float* dx, float* dgate) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    const int64_t first = begin * columns;
    GateBackward(end - begin, columns, gate + begin, x + first, dy + first, dx + first,
                 dgate + begin);
  });
}

}  // namespace trimtab

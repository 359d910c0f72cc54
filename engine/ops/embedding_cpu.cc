#include "engine/ops/embedding_cpu.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void AddSpan(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

void EmbeddingForwardCpu(int threads, int64_t rows, int64_t columns, const int32_t* tokens,
                         const float* table, int64_t first_id, int64_t ids, float* out) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    const auto row_bytes = static_cast<size_t>(columns) * sizeof(float);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t id = tokens[row] - first_id;
      float* y = out + row * columns;
      if (id >= 0 && id < ids) {
        std::memcpy(y, table + id * columns, row_bytes);
      } else {
        std::memset(y, 0, row_bytes);
      }
    }
  });
}

void EmbeddingBackwardCpu(int threads, int64_t rows, int64_t columns, const int32_t* tokens,
                          const float* dout, int64_t first_id, int64_t ids, float* dtable) {
  ParallelFor(threads, columns, ColumnGrain(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t id = tokens[row] - first_id;
      if (id < 0 || id >= ids) continue;
      AddSpan(end - begin, dout + row * columns + begin, dtable + id * columns + begin);
    }
  });
}

void PositionForwardCpu(int threads, int64_t rows, int64_t columns, const float* table,
                        int64_t row_start, int64_t sequence, float* x) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = (row_start + row) % sequence;
      AddSpan(columns, table + position * columns, x + row * columns);
    }
  });
}

void PositionBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dx,
                         int64_t row_start, int64_t sequence, float* dtable) {
  ParallelFor(threads, columns, ColumnGrain(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = (row_start + row) % sequence;
      AddSpan(end - begin, dx + row * columns + begin, dtable + position * columns + begin);
    }
  });
}

}  // namespace trimtab

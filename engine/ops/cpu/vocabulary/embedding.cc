#include "engine/ops/cpu/vocabulary/embedding.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void AddSpan(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

void EmbeddingForwardCpu(int threads, int64_t rows, int64_t row_bytes, const int32_t* tokens,
                         const void* table, int64_t first_id, int64_t ids, void* out) {
  constexpr int64_t kFloat = sizeof(float);
  ParallelFor(threads, rows, RowGrain(row_bytes / kFloat), [=](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(row_bytes);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t id = tokens[row] - first_id;
      char* y = static_cast<char*>(out) + row * row_bytes;
      if (id >= 0 && id < ids) {
        std::memcpy(y, static_cast<const char*>(table) + id * row_bytes, size);
      } else {
        std::memset(y, 0, size);  // zeros are all bits clear in every type
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
                        int64_t row_start, const RowPositions& positions, float* x) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = positions.of(row_start + row);
      AddSpan(columns, table + position * columns, x + row * columns);
    }
  });
}

void PositionBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dx,
                         int64_t row_start, const RowPositions& positions, float* dtable) {
  ParallelFor(threads, columns, ColumnGrain(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = positions.of(row_start + row);
      AddSpan(end - begin, dx + row * columns + begin, dtable + position * columns + begin);
    }
  });
}

UsedRows FindUsedRows(int64_t count, const int32_t* tokens, int64_t first_id, int64_t ids) {
  UsedRows used;
  used.places.reserve(static_cast<size_t>(count));
  std::unordered_map<int64_t, int32_t> place_of;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = tokens[i] - first_id;
    if (id < 0 || id >= ids) {
      used.places.push_back(-1);
      continue;
    }
    const auto [found, is_new] = place_of.try_emplace(id, static_cast<int32_t>(used.rows.size()));
    if (is_new) used.rows.push_back(id);
    used.places.push_back(found->second);
  }
  return used;
}

}  // namespace trimtab

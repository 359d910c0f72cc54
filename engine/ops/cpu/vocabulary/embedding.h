// CPU kernels of embedding.h. `first_id` and `ids` say which ids the table's rows are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/attention/row_layout.h"

namespace trimtab {

/// Copies rows of `row_bytes` bytes, whatever they hold.
void EmbeddingForwardCpu(int threads, int64_t rows, int64_t row_bytes, const int32_t* tokens,
                         const void* table, int64_t first_id, int64_t ids, void* out);
void EmbeddingBackwardCpu(int threads, int64_t rows, int64_t columns, const int32_t* tokens,
                          const float* dout, int64_t first_id, int64_t ids, float* dtable);
void PositionForwardCpu(int threads, int64_t rows, int64_t columns, const float* table,
                        int64_t row_start, const RowPositions& positions, float* x);
void PositionBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dx,
                         int64_t row_start, const RowPositions& positions, float* dtable);

/// Which rows of a table occur among tokens, each once, in order of first use; and for each token
/// where its row stands in that list, -1 for ids that are not the table's.
struct UsedRows {
  std::vector<int64_t> rows;
  std::vector<int32_t> places;
};
UsedRows FindUsedRows(int64_t count, const int32_t* tokens, int64_t first_id, int64_t ids);

}  // namespace trimtab

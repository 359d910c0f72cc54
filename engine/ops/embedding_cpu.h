// CPU kernels of embedding.h. `first_id` and `ids` say which ids the table's rows are.
#pragma once

#include <cstdint>

namespace trimtab {

void EmbeddingForwardCpu(int threads, int64_t rows, int64_t columns, const int32_t* tokens,
                         const float* table, int64_t first_id, int64_t ids, float* out);
void EmbeddingBackwardCpu(int threads, int64_t rows, int64_t columns, const int32_t* tokens,
                          const float* dout, int64_t first_id, int64_t ids, float* dtable);
void PositionForwardCpu(int threads, int64_t rows, int64_t columns, const float* table,
                        int64_t row_start, int64_t sequence, float* x);
void PositionBackwardCpu(int threads, int64_t rows, int64_t columns, const float* dx,
                         int64_t row_start, int64_t sequence, float* dtable);

}  // namespace trimtab

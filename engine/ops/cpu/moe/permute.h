// CPU kernels of permute.h.
#pragma once

#include <cstdint>

namespace trimtab {

void SortByExpertCpu(int64_t choices, const int32_t* choice, int64_t first_expert, int64_t experts,
                     int64_t padded_rows, int64_t rows, int32_t* row_of, int32_t* choice_of);
/// The ranks whose rows came, and in which order.
struct Arrivals {
  int64_t ranks = 0;
  int64_t lead = 1;
  int64_t all_experts = 0;
};
/// The number of rows that `counts` says came; writes none beyond `rows`.
int64_t OrderArrivalsCpu(const Arrivals& arrivals, int64_t first_expert, int64_t experts,
                         int64_t rows, const float* counts, int32_t* by_expert, int32_t* by_rank);
void PermuteCpu(int threads, int64_t rows, int64_t row_bytes, const void* x,
                const int32_t* choice_of, int64_t topk, void* out);
/// `weights` may be null.
void UnpermuteCpu(int threads, int64_t tokens, int64_t columns, int64_t topk, const float* rows,
                  const int32_t* row_of, const float* weights, float* y);
void UnpermuteRowsBackwardCpu(int threads, int64_t rows, int64_t columns, int64_t topk,
                              const float* dy, const int32_t* choice_of, const float* weights,
                              float* drows);
void UnpermuteWeightsBackwardCpu(int threads, int64_t tokens, int64_t columns, int64_t topk,
                                 const float* dy, const float* rows, const int32_t* row_of,
                                 float* dweights);

}  // namespace trimtab

#include "engine/ops/cpu/moe/permute.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void ScaleRow(int64_t n, float factor, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

TRIMTAB_CLONES void AddScaledRow(int64_t n, float factor, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

TRIMTAB_CLONES float DotRow(int64_t n, const float* x, const float* y) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

void SortByExpertCpu(int64_t choices, const int32_t* choice, int64_t first_expert, int64_t experts,
                     int64_t padded_rows, int64_t rows, int32_t* row_of, int32_t* choice_of) {
  // Counted from the first of the range; -1 for one that is not in it.
  const auto expert_of = [&](int64_t c) {
    const int64_t expert = choice[c] - first_expert;
    return choice[c] < 0 || expert < 0 || expert >= experts ? int64_t{-1} : expert;
  };
  std::vector<int64_t> next(static_cast<size_t>(experts) + 1);
  if (padded_rows > 0) {
    for (int64_t e = 0; e < experts; ++e) next[static_cast<size_t>(e)] = e * padded_rows;
  } else {
    for (int64_t c = 0; c < choices; ++c) {
      if (expert_of(c) >= 0) ++next[static_cast<size_t>(expert_of(c)) + 1];
    }
    for (int64_t e = 0; e < experts; ++e) {
      next[static_cast<size_t>(e) + 1] += next[static_cast<size_t>(e)];
    }
  }
  std::fill_n(choice_of, rows, -1);
  for (int64_t c = 0; c < choices; ++c) {
    row_of[c] = -1;
    if (expert_of(c) < 0) continue;
    const int64_t row = next[static_cast<size_t>(expert_of(c))]++;
    row_of[c] = static_cast<int32_t>(row);
    choice_of[row] = static_cast<int32_t>(c);
  }
}

int64_t OrderArrivalsCpu(const Arrivals& arrivals, int64_t first_expert, int64_t experts,
                         int64_t rows, const float* counts, int32_t* by_expert, int32_t* by_rank) {
  const auto count = [&](int64_t rank, int64_t expert) {
    return static_cast<int64_t>(counts[rank * arrivals.all_experts + first_expert + expert]);
  };
  std::vector<int64_t> next(static_cast<size_t>(experts) + 1);  // free row of each expert
  for (int64_t e = 0; e < experts; ++e) {
    int64_t end = next[static_cast<size_t>(e)];
    for (int64_t rank = 0; rank < arrivals.ranks; ++rank) end += count(rank, e);
    next[static_cast<size_t>(e) + 1] = end;
  }
  if (next.back() > rows) return next.back();
  int64_t came = 0;
  for (int64_t first = 0; first < arrivals.lead; ++first) {
    for (int64_t rank = first; rank < arrivals.ranks; rank += arrivals.lead) {
      for (int64_t e = 0; e < experts; ++e) {
        for (int64_t left = count(rank, e); left > 0; --left) {
          const int64_t row = next[static_cast<size_t>(e)]++;
          by_expert[row] = static_cast<int32_t>(came);
          by_rank[came++] = static_cast<int32_t>(row);
        }
      }
    }
  }
  return came;
}

void PermuteCpu(int threads, int64_t rows, int64_t row_bytes, const void* x,
                const int32_t* choice_of, int64_t topk, void* out) {
  constexpr int64_t kFloat = sizeof(float);
  ParallelFor(threads, rows, RowGrain(row_bytes / kFloat), [=](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(row_bytes);
    for (int64_t row = begin; row < end; ++row) {
      char* to = static_cast<char*>(out) + row * row_bytes;
      if (choice_of[row] < 0) {
        std::memset(to, 0, size);  // zeros are all bits clear in every type
      } else {
        std::memcpy(to, static_cast<const char*>(x) + choice_of[row] / topk * row_bytes, size);
      }
    }
  });
}

void UnpermuteCpu(int threads, int64_t tokens, int64_t columns, int64_t topk, const float* rows,
                  const int32_t* row_of, const float* weights, float* y) {
  ParallelFor(threads, tokens, RowGrain(columns * topk), [=](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* sum = y + token * columns;
      std::fill_n(sum, columns, 0.0f);
      for (int64_t c = token * topk; c < (token + 1) * topk; ++c) {
        if (row_of[c] < 0) continue;
        AddScaledRow(columns, weights == nullptr ? 1.0f : weights[c], rows + row_of[c] * columns,
                     sum);
      }
    }
  });
}

void UnpermuteRowsBackwardCpu(int threads, int64_t rows, int64_t columns, int64_t topk,
                              const float* dy, const int32_t* choice_of, const float* weights,
                              float* drows) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t choice = choice_of[row];
      if (choice < 0) {
        std::fill_n(drows + row * columns, columns, 0.0f);
      } else {
        ScaleRow(columns, weights[choice], dy + choice / topk * columns, drows + row * columns);
      }
    }
  });
}

void UnpermuteWeightsBackwardCpu(int threads, int64_t tokens, int64_t columns, int64_t topk,
                                 const float* dy, const float* rows, const int32_t* row_of,
                                 float* dweights) {
  ParallelFor(threads, tokens, RowGrain(columns * topk), [=](int64_t begin, int64_t end) {
    for (int64_t c = begin * topk; c < end * topk; ++c) {
      dweights[c] = row_of[c] < 0
                        ? 0.0f
                        : DotRow(columns, dy + c / topk * columns, rows + row_of[c] * columns);
    }
  });
}

}  // namespace trimtab

// CPU kernels of grouped_gemm.h. Workers wait for one another once, not once for each group.
#pragma once

#include <cstdint>
#include <span>

namespace trimtab {

/// c [M, n] = of each group its rows of a [M, k] times b[g], which is [k, n] or, transposed, [n,
/// k]. With `short_sums` as ShortSumGemm adds up.
void GroupedGemmCpu(int threads, std::span<const int64_t> rows, int64_t n, int64_t k,
                    const float* a, const float* b, bool transposed, float* c, bool short_sums);

/// c [G, m, n] = (c +) of each group the transpose of its rows of a [K, m] times those of b [K, n].
void GroupedGemmWeightsCpu(int threads, std::span<const int64_t> rows, int64_t m, int64_t n,
                           const float* a, const float* b, float* c, bool accumulate);

/// The same of the transposes of a and b, group by group: of each [m, columns] and [n, columns].
void GroupedGemmColumnsCpu(int threads, std::span<const int64_t> columns, int64_t m, int64_t n,
                           const float* a, const float* b, float* c, bool accumulate);

}  // namespace trimtab

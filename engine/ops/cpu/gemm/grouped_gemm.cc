#include "engine/ops/cpu/gemm/grouped_gemm.h"

#include <algorithm>
#include <numeric>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/gemm/gemm.h"
#include "engine/ops/cpu/gemm/short_sums.h"

namespace trimtab {
namespace {

// Parts begin at multiples of oneDNN's widest kernel.
constexpr int64_t kPartGrain = 48;

/// How the operands of one group lie from its first element on, and where a worker's part of a
/// begins.
struct Operands {
  MatrixView a;
  int64_t part_of_a;
  MatrixView b;
};

/// c [G, m, n] = (c +) of each group a product over `sums` terms, whose operands come after those
/// of the groups before it; they lie as `lie(terms, first row)` says.
template <typename Lie>
void SumOverGroups(int threads, std::span<const int64_t> sums, int64_t m, int64_t n, const float* a,
                   const float* b, float* c, bool accumulate, const Lie& lie) {
  UseThreads(threads);
  // Each worker takes some rows of every group's result.
  ParallelFor(threads, m, kPartGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t g = 0; g < sums.size(); ++g) {
      float* result = c + (static_cast<int64_t>(g) * m + begin) * n;
      if (sums[g] > 0) {
        Operands operands = lie(sums[g], begin);
        operands.a.data = a + first * m + operands.part_of_a;
        operands.b.data = b + first * n;
        Sgemm(end - begin, n, sums[g], 1.0f, operands.a, operands.b, accumulate ? 1.0f : 0.0f,
              result, n);
      } else if (!accumulate) {
        std::fill_n(result, (end - begin) * n, 0.0f);
      }
      first += sums[g];
    }
  });
}

}  // namespace

void GroupedGemmCpu(int threads, std::span<const int64_t> rows, int64_t n, int64_t k,
                    const float* a, const float* b, bool transposed, float* c, bool short_sums) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  UseThreads(threads);
  // Each worker takes a run of rows, whichever groups they belong to.
  ParallelFor(threads, all, kPartGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t g = 0; g < rows.size(); ++g) {
      const int64_t from = std::max(begin, first);
      const int64_t to = std::min(end, first + rows[g]);
      first += rows[g];
      if (from >= to) continue;
      const MatrixView left = {a + from * k, k, false};
      const MatrixView right = {b + static_cast<int64_t>(g) * n * k, transposed ? k : n,
                                transposed};
      if (short_sums) {
        ShortSumGemm(to - from, n, k, left, right, /*add=*/false, c + from * n, n);
      } else {
        Sgemm(to - from, n, k, 1.0f, left, right, 0.0f, c + from * n, n);
      }
    }
  });
}

void GroupedGemmWeightsCpu(int threads, std::span<const int64_t> rows, int64_t m, int64_t n,
                           const float* a, const float* b, float* c, bool accumulate) {
  SumOverGroups(threads, rows, m, n, a, b, c, accumulate, [m, n](int64_t, int64_t begin) {
    return Operands{{nullptr, m, true}, begin, {nullptr, n, false}};
  });
}

void GroupedGemmColumnsCpu(int threads, std::span<const int64_t> columns, int64_t m, int64_t n,
                           const float* a, const float* b, float* c, bool accumulate) {
  SumOverGroups(threads, columns, m, n, a, b, c, accumulate, [](int64_t sum, int64_t begin) {
    return Operands{{nullptr, sum, false}, begin * sum, {nullptr, sum, true}};
  });
}

}  // namespace trimtab

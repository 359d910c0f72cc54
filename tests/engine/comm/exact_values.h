// Values whose sums over ranks are exact in every dtype, for tests of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/engine/comm/rank_threads.h"

namespace trimtab {

/// Element i of rank r's input. At most 8 * 12 + 36 when summed over 8 ranks, and so below 2^8.
inline double Value(int rank, int64_t i) { return static_cast<double>(i % 13 + rank + 1); }

inline double SumOfValues(int ranks, int64_t i) {
  return static_cast<double>(ranks * (i % 13) + ranks * (ranks + 1) / 2);
}

inline void FillFrom(Tensor& tensor, int rank) {
  Fill(tensor, [rank](int64_t i) { return Value(rank, i); });
}

/// The first i at which tensor[i] is not `expected(i)`; -1 if there is none.
template <typename Expected>
int64_t FirstDifference(const Tensor& tensor, const Expected& expected) {
  const std::vector<double> values = Load(tensor);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (values[static_cast<size_t>(i)] != expected(i)) return i;
  }
  return -1;
}

/// Ranks that are processes. Nothing where mpirun did not start this process: mpi_test does that.
inline std::vector<RankKind> Processes() {
  if (WhyNot(RankKind::kCpuProcesses, 1).empty()) return {RankKind::kCpuProcesses};
  return {};
}

}  // namespace trimtab

// How a cpu kernel is compiled: once per level of the instruction set, chosen when it is called.
//
// The loops stand in plain functions over contiguous rows: neither a lambda nor an OpenMP region
// inherits the target of the function around it.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRIMTAB_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIMTAB_CLONES
#endif

namespace trimtab {

/// Elements that are worth waking a worker for (10 us of work or more), a multiple of every vector.
inline constexpr int64_t kSpanGrain = 65536;

/// The same in rows of `columns` elements.
inline int64_t RowGrain(int64_t columns) {
  return std::max<int64_t>(1, kSpanGrain / std::max<int64_t>(1, columns));
}

/// Kernels that sum over rows split the columns over the workers, in blocks of this many: one
/// worker adds up a column in the order of the rows, so the sum does not depend on the split.
inline constexpr int64_t kColumnBlock = 64;

/// Columns of `rows` elements that are worth waking a worker for, whole blocks. A plain sum is less
/// work per element than the kernels that go by row.
inline int64_t ColumnGrain(int64_t rows) {
  const int64_t columns = 4 * kSpanGrain / std::max<int64_t>(1, rows);
  return std::max<int64_t>(1, columns / kColumnBlock) * kColumnBlock;
}

}  // namespace trimtab

// Products of several rows with a block of an unpacked panel of packed_gemm.h: every element is one
// chain of multiply-adds in the order of the columns, whatever the other rows are.
#pragma once

#include <cstdint>

#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Columns of W that are multiplied at a time: with the rows that they multiply they stay in the
/// first levels of cache. A multiple of kInt4Group.
inline constexpr int64_t kBlockColumns = 256;
inline constexpr int64_t kBlockGroups = kBlockColumns / kInt4Group;
static_assert(kBlockColumns % kInt4Group == 0);

/// Memory that is read next: fetched into the second level of cache beside the arithmetic. Nothing
/// is read of it, so it may end behind what there is.
struct MemoryAhead {
  const char* data = nullptr;
  int64_t bytes = 0;
};

struct BlockProduct {
  int64_t rows;          // of x
  int64_t columns;       // of W, at most kBlockColumns
  const float* x;        // [rows, kBlockColumns]
  const float* factors;  // [columns, kPanelRows]
  bool first;            // Sums begin here, with zeros; otherwise with what `sums` holds.
  float* sums;           // [rows, kPanelRows]
  // Of int4, null otherwise: scales [columns / kInt4Group, kPanelRows] that the sum of each group
  // is multiplied by before it is added to the others, and what it starts with: starts [rows,
  // kBlockGroups].
  const float* scales;
  const float* starts;
  MemoryAhead ahead;
  // Where the results of these rows will be written, `written_stride` floats apart: asked of memory
  // too. Null where that is not next.
  float* written;
  int64_t written_stride;
};

/// sums [rows, kPanelRows] (+)= x times the block, on the calling worker.
void MultiplyBlock(const BlockProduct& product);

}  // namespace trimtab

// The collectives of tensor-parallel linear layers in chunks of rows, beside the products that they
// feed or follow (layout.tp_overlap_chunks = n; Wang et al., Overlap Communication with Dependent
// Computation via Decomposition, ASPLOS 2023).
//
// While one chunk is multiplied, the next one is gathered, or the one before it is reduced. A chunk
// is 1/n of the rows of every rank. With sequence parallelism these are apart in the whole; for the
// product, which is one for a chunk, they stand one after the other.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/layers/layer_context.h"

namespace trimtab {

/// Where the rows of a chunk are in a matrix of all rows [N, columns].
struct RowChunk {
  int64_t first = 0;   // row
  int64_t rows = 0;    // of each run
  int64_t runs = 1;    // of neighbouring rows: one of each rank
  int64_t stride = 0;  // rows from one run to the next

  int64_t count() const { return rows * runs; }
};

/// The rows of a chunk [count, columns], one after the other: a view where they are so, or a copy.
Tensor CollectRows(const LayerContext& context, const Tensor& whole, const RowChunk& chunk);
/// Copies them to their places.
void SpreadRows(const Tensor& rows, const RowChunk& chunk, Tensor& whole);

/// The all-gather that opens a sequence-parallel region's full view of x [rows, C]: calls `use`
/// with every chunk of it as it arrives.
void GatherInChunks(const LayerContext& context, const Tensor& x,
                    const std::function<void(const Tensor& rows, const RowChunk& chunk)>& use);

/// Sums a partial result [N, columns] over the tensor-parallel group as ReduceRows does.
class ChunkedReduction {
 public:
  /// The result is [N, columns], or with sequence parallelism [rows, columns], under `tag`. `make`
  /// writes the partial result of a chunk, its rows one after the other. The last chunk is still on
  /// its way afterwards.
  ChunkedReduction(const LayerContext& context, int64_t columns, MemoryTag tag,
                   const std::function<void(const RowChunk& chunk, Tensor& partial)>& make);

  /// Waits for it.
  Tensor Take();

 private:
  Tensor result_;
  CommHandle last_;
};

}  // namespace trimtab

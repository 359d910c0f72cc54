// The collectives of tensor-parallel linear layers in chunks of rows, beside the products that they
// feed or follow (layout.tp_overlap_chunks = n; Wang et al., Overlap Communication with Dependent
// Computation via Decomposition, ASPLOS 2023).
//
// While one chunk is multiplied, the next one is gathered, or the one before it is reduced. A chunk
// is 1/n of the rows of every rank, so with sequence parallelism it is as many runs of rows of the
// whole as there are ranks, each multiplied on its own.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/layers/layer_context.h"

namespace trimtab {

/// Some rows of a matrix [N, columns], from row `first` on.
struct RowRun {
  int64_t first = 0;
  Tensor rows;
};

/// The all-gather that opens a sequence-parallel region's full view of x [rows, C]: calls `use` for
/// every run of rows of [N, C], once, as they arrive. What it is given is gone afterwards.
void GatherInChunks(const LayerContext& context, const Tensor& x,
                    const std::function<void(const RowRun& run)>& use);

/// Sums a partial result [N, columns] over the tensor-parallel group as ReduceRows does, run by
/// run.
class ChunkedReduction {
 public:
  /// The result is [N, columns], or with sequence parallelism [rows, columns], under `tag`. `make`
  /// writes the partial result of a run. The last chunk is still on its way afterwards.
  ChunkedReduction(const LayerContext& context, int64_t columns, MemoryTag tag,
                   const std::function<void(RowRun& run)>& make);

  /// Waits for it.
  Tensor Take();

 private:
  Tensor result_;
  CommHandle last_;
};

}  // namespace trimtab

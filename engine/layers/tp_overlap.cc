#include "engine/layers/tp_overlap.h"

#include <utility>

namespace trimtab {
namespace {

/// How the rows of this rank are cut, and those of the whole.
struct Chunks {
  explicit Chunks(const LayerContext& context)
      : count(context.tp_chunks()),
        rows(context.rows() / count),
        runs(context.sequence_parallel() ? context.tp() : 1),
        rank_rows(context.rows()) {
    TRIMTAB_ASSERT(context.rows() % count == 0, "{} rows in {} chunks", context.rows(), count);
  }

  /// The first row in the whole of run `run` of chunk `chunk`.
  int64_t First(int64_t chunk, int64_t run) const { return run * rank_rows + chunk * rows; }

  int64_t count;
  int64_t rows;  // of one rank's in a chunk: a run
  int64_t runs;  // of a chunk
  int64_t rank_rows;
};

}  // namespace

void GatherInChunks(const LayerContext& context, const Tensor& x,
                    const std::function<void(const RowRun& run)>& use) {
  const Chunks chunks(context);
  struct Gather {
    Tensor rows;
    CommHandle handle;
  };
  const auto submit = [&](int64_t chunk) {
    Gather gather = {
        .rows = context.New({chunks.runs * chunks.rows, x.dim(1)}, MemoryTag::kWorkspace),
        .handle = {}};
    gather.handle =
        context.parallel.tp->AllGatherAsync(x.Rows(chunk * chunks.rows, chunks.rows), gather.rows);
    return gather;
  };
  Gather next = submit(0);
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    Gather gather = std::exchange(next, {});
    if (chunk + 1 < chunks.count) next = submit(chunk + 1);
    gather.handle.Wait();
    for (int64_t run = 0; run < chunks.runs; ++run) {
      use({chunks.First(chunk, run), gather.rows.Rows(run * chunks.rows, chunks.rows)});
    }
  }
}

ChunkedReduction::ChunkedReduction(const LayerContext& context, int64_t columns, MemoryTag tag,
                                   const std::function<void(RowRun& run)>& make)
    : result_(context.New({context.rows(), columns}, tag)) {
  const Chunks chunks(context);
  const bool scattered = context.sequence_parallel();
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    Tensor own = result_.Rows(chunk * chunks.rows, chunks.rows);
    Tensor partial =
        scattered ? context.New({chunks.runs * chunks.rows, columns}, MemoryTag::kWorkspace) : own;
    for (int64_t run = 0; run < chunks.runs; ++run) {
      RowRun each = {chunks.First(chunk, run), partial.Rows(run * chunks.rows, chunks.rows)};
      make(each);
    }
    last_.Wait();
    last_ = scattered ? context.parallel.tp->ReduceScatterAsync(partial, own)
                      : context.parallel.tp->AllReduceAsync(own);
  }
}

Tensor ChunkedReduction::Take() {
  last_.Wait();
  return std::move(result_);
}

}  // namespace trimtab

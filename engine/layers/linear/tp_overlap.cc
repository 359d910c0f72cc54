#include "engine/layers/linear/tp_overlap.h"

#include <utility>

#include "engine/device/repeat.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

/// Rows of one rank in a chunk.
int64_t RowsOfChunk(const LayerContext& context) {
  const int64_t chunks = context.tp_chunks();
  TRIMTAB_ASSERT(context.rows() % chunks == 0, "{} rows in {} chunks", context.rows(), chunks);
  return context.rows() / chunks;
}

RowChunk ChunkOf(const LayerContext& context, int64_t index) {
  const int64_t rows = RowsOfChunk(context);
  return {.first = index * rows,
          .rows = rows,
          .runs = context.sequence_parallel() ? context.tp() : 1,
          .stride = context.rows()};
}

}  // namespace

Tensor CollectRows(const LayerContext& context, const Tensor& whole, const RowChunk& chunk) {
  if (chunk.runs == 1) return whole.Rows(chunk.first, chunk.rows);
  const Tensor rows = context.New({chunk.count(), whole.dim(1)}, MemoryTag::kWorkspace);
  Repeat(context.device, chunk.runs, [&](int64_t run) {
    Tensor to = rows.Rows(run * chunk.rows, chunk.rows);
    Copy(whole.Rows(chunk.first + run * chunk.stride, chunk.rows), to);
  });
  return rows;
}

void SpreadRows(const Tensor& rows, const RowChunk& chunk, Tensor& whole) {
  Repeat(whole.device(), chunk.runs, [&](int64_t run) {
    Tensor to = whole.Rows(chunk.first + run * chunk.stride, chunk.rows);
    Copy(rows.Rows(run * chunk.rows, chunk.rows), to);
  });
}

void GatherInChunks(const LayerContext& context, const Tensor& x,
                    const std::function<void(const Tensor& rows, const RowChunk& chunk)>& use) {
  struct Gather {
    Tensor rows;
    CommHandle handle;
  };
  const auto submit = [&](int64_t index) {
    const RowChunk chunk = ChunkOf(context, index);
    Gather gather = {.rows = context.New({chunk.count(), x.dim(1)}, MemoryTag::kWorkspace),
                     .handle = {}};
    gather.handle =
        context.parallel.tp->AllGatherAsync(x.Rows(chunk.first, chunk.rows), gather.rows);
    return gather;
  };
  Gather next = submit(0);
  for (int64_t index = 0; index < context.tp_chunks(); ++index) {
    Gather gather = std::exchange(next, {});
    if (index + 1 < context.tp_chunks()) next = submit(index + 1);
    gather.handle.Wait();
    use(gather.rows, ChunkOf(context, index));
  }
}

ChunkedReduction::ChunkedReduction(
    const LayerContext& context, int64_t columns, MemoryTag tag,
    const std::function<void(const RowChunk& chunk, Tensor& partial)>& make)
    : result_(context.New({context.rows(), columns}, tag)) {
  const bool scattered = context.sequence_parallel();
  for (int64_t index = 0; index < context.tp_chunks(); ++index) {
    const RowChunk chunk = ChunkOf(context, index);
    Tensor own = result_.Rows(chunk.first, chunk.rows);
    Tensor partial = scattered ? context.New({chunk.count(), columns}, MemoryTag::kWorkspace) : own;
    make(chunk, partial);
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

// Embeddings of tokens and positions, a warp per row. The backward pass of tokens is in
// embedding_backward.cu.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/cuda/vocabulary/embedding_backward.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kUnroll = 4;  // packs of a lane in flight

// Calls body(row) with this warp's rows.
template <typename Body>
__device__ __forceinline__ void ForEachRow(int64_t rows, Body body) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    body(row);
  }
}

// out = row of the table, zeros for tokens of other shards.
template <int N, typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    TokenForward(const int32_t* __restrict__ tokens, const T* __restrict__ table,
                 int64_t vocab_start, int64_t vocab, int64_t rows, int64_t columns,
                 T* __restrict__ out) {
  ForEachRow(rows, [&](int64_t row) {
    const int64_t id = tokens[row] - vocab_start;
    const bool here = id >= 0 && id < vocab;
    const T* from = table + (here ? id : 0) * columns;
    T* to = out + row * columns;
    constexpr int64_t kStride = int64_t{kWarpSize} * N;
    for (int64_t first = threadIdx.x * N; first < columns; first += kUnroll * kStride) {
      Pack<T, N> packs[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (here && column < columns) packs[u] = LoadPack<N>(from + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (column < columns) StorePack(to + column, packs[u]);
      }
    }
  });
}

// x += row of the table.
template <int N, typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    PositionForwardKernel(const T* __restrict__ table, int64_t row_start, RowPositions positions,
                          int64_t rows, int64_t columns, T* __restrict__ x) {
  ForEachRow(rows, [&](int64_t row) {
    const T* from = table + positions.of(row_start + row) * columns;
    T* to = x + row * columns;
    constexpr int64_t kStride = int64_t{kWarpSize} * N;
    for (int64_t first = threadIdx.x * N; first < columns; first += kUnroll * kStride) {
      Pack<T, N> terms[kUnroll];
      Pack<T, N> values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (column < columns) {
          terms[u] = LoadPack<N>(from + column);
          values[u] = LoadPack<N>(to + column);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (column < columns) {
          float sums[N];
#pragma unroll
          for (int i = 0; i < N; ++i) sums[i] = ToFloat(values[u][i]) + ToFloat(terms[u][i]);
          StoreFloats(to + column, sums);
        }
      }
    }
  });
}

// dtable += the rows of dx at each position, in the order of the rows: one warp adds up 32
// neighbouring packs of a position. For layouts in which positions are offsets.
template <int N, typename T, typename G>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    PositionBackwardKernel(const T* __restrict__ dx, int64_t row_start, RowPositions positions,
                           int64_t rows, int64_t columns, G* __restrict__ dtable) {
  const int64_t column = (int64_t{blockIdx.y} * kWarpSize + threadIdx.x) * N;
  if (column >= columns) return;
  const int64_t sequence = positions.sequence;
  ForEachRow(sequence, [&](int64_t token) {
    const int64_t ahead = token - row_start % sequence;
    const int64_t begin = ahead < 0 ? ahead + sequence : ahead;
    if (begin >= rows) return;
    G* sum = dtable + positions.offset(token) * columns + column;
    float sums[N];
    LoadFloats<N>(sum, sums);
    for (int64_t first = begin; first < rows; first += kUnroll * sequence) {
      float terms[kUnroll][N];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t row = first + u * sequence;
        if (row < rows) LoadFloats<N>(dx + row * columns + column, terms[u]);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * sequence >= rows) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += terms[u][i];
      }
    }
    StoreFloats(sum, sums);
  });
}

dim3 WarpBlock() { return {kWarpSize, kWarps}; }

void EmbeddingForwardCuda(const Tensor& tokens, const Tensor& table, int64_t vocab_start,
                          Tensor& out) {
  const LaunchContext context = ContextOf(out.device());
  const int64_t rows = out.dim(0);
  const int64_t columns = out.dim(1);
  DispatchFloat(out.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(columns, table.raw(), out.raw());
    Launch(context, aligned ? TokenForward<kPackSize<T>, T> : TokenForward<1, T>,
           GridFor(context, rows, kWarps, kBlocksPerMultiprocessor), WarpBlock(), 0,
           Data<const int32_t>(tokens), Data<const T>(table), vocab_start, table.dim(0), rows,
           columns, Data<T>(out));
  });
}

void PositionForwardCuda(const Tensor& table, int64_t row_start, const RowLayout& layout,
                         Tensor& x) {
  const LaunchContext context = ContextOf(x.device());
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(columns, table.raw(), x.raw());
    Launch(context, aligned ? PositionForwardKernel<kPackSize<T>, T> : PositionForwardKernel<1, T>,
           GridFor(context, rows, kWarps, kBlocksPerMultiprocessor), WarpBlock(), 0,
           Data<const T>(table), row_start, layout.view(), rows, columns, Data<T>(x));
  });
}

template <typename T, typename G>
void PositionBackwardOf(const Tensor& dx, int64_t row_start, const RowPositions& positions,
                        Tensor& dtable) {
  const LaunchContext context = ContextOf(dx.device());
  const int64_t rows = dx.dim(0);
  const int64_t columns = dx.dim(1);
  // As many as make 16 bytes of the wider type.
  constexpr int kPack = std::min(kPackSize<T>, kPackSize<G>);
  const bool aligned = RowsAligned<T>(columns, dx.raw(), dtable.raw());
  const int64_t per_warp = int64_t{kWarpSize} * (aligned ? kPack : 1);
  const dim3 grid(GridFor(context, positions.sequence, kWarps, kBlocksPerMultiprocessor),
                  static_cast<unsigned>((columns + per_warp - 1) / per_warp));
  Launch(context, aligned ? PositionBackwardKernel<kPack, T, G> : PositionBackwardKernel<1, T, G>,
         grid, WarpBlock(), 0, Data<const T>(dx), row_start, positions, rows, columns,
         Data<G>(dtable));
}

void PositionBackwardCuda(const Tensor& dx, int64_t row_start, const RowLayout& layout,
                          Tensor& dtable) {
  if (layout.positions.defined()) {
    // Several rows of a sequence may be at one position, as several may hold one token.
    const Tensor listed = layout.positions.Slice(row_start, {dx.dim(0)});
    return EmbeddingBackwardCuda(listed, dx, /*vocab_start=*/0, dtable);
  }
  DispatchFloat(dx.dtype(), [&](auto* type) {
    DispatchGradient(dtable.dtype(), [&](auto* gradient) {
      PositionBackwardOf<std::remove_pointer_t<decltype(type)>,
                         std::remove_pointer_t<decltype(gradient)>>(dx, row_start, layout.view(),
                                                                    dtable);
    });
  });
}

}  // namespace

void FillEmbeddingOps(CudaOps& ops) {
  ops.embedding_forward = EmbeddingForwardCuda;
  ops.embedding_backward = EmbeddingBackwardCuda;
  ops.position_forward = PositionForwardCuda;
  ops.position_backward = PositionBackwardCuda;
}

}  // namespace trimtab

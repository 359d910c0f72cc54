// Backward of token embeddings: each row of dtable gets the sum of the rows of dout that belong to
// its token, added up in fp32 in the order of the rows, so the result is the same in every run and
// a bf16 gradient is rounded once. No float atomics.
//
// The rows are first grouped by token: integer atomics count them and hand out places, in whatever
// order, and what depends on the order is put right afterwards. A rare token's rows (at most a
// warp's lanes) are sorted in registers by the warp that adds them. A frequent token's are listed
// in order by a block that walks all tokens; there are few such tokens, and their many rows are
// then divided between the warps of a block.
#include "engine/ops/cuda/vocabulary/embedding_backward.h"

#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kListThreads = 1024;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kRare = kWarpSize;  // rows of a rare token at most
// Accesses of a thread in flight: packs of a rare token's row, rows of a frequent token.
constexpr int kRarePacks = 4;
constexpr int kFrequentRows = 8;

/// The grouping, in scratch.
struct Groups {
  int* counts;    // [vocab] rows of each token
  int* places;    // [vocab] where its rows start in `rows`; while they are placed, the next place
  int* rare;      // tokens with 1 to kRare rows
  int* frequent;  // tokens with more
  int* rows;      // row numbers, token by token
  int* cursors;   // kCursors values
};
enum Cursor : int { kPlaces, kRareTokens, kFrequentTokens, kCursors };

struct Tokens {
  const int32_t* ids;
  int64_t rows;
  int64_t vocab_start;
  int64_t vocab;

  /// Row of the table, or -1 for tokens of other shards.
  __device__ __forceinline__ int At(int64_t row) const {
    const int64_t id = ids[row] - vocab_start;
    return id >= 0 && id < vocab ? static_cast<int>(id) : -1;
  }
};

__device__ __forceinline__ int64_t FirstItem() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t ItemStride() { return int64_t{gridDim.x} * blockDim.x; }

__global__ void __launch_bounds__(kThreads) CountRows(Tokens tokens, Groups groups) {
  for (int64_t row = FirstItem(); row < tokens.rows; row += ItemStride()) {
    const int token = tokens.At(row);
    if (token >= 0) atomicAdd(&groups.counts[token], 1);
  }
}

// Gives every token that occurs its places and puts it on one of the lists.
__global__ void __launch_bounds__(kThreads) ListTokens(int64_t vocab, Groups groups) {
  for (int64_t token = FirstItem(); token < vocab; token += ItemStride()) {
    const int count = groups.counts[token];
    if (count == 0) continue;
    groups.places[token] = atomicAdd(&groups.cursors[kPlaces], count);
    if (count <= kRare) {
      groups.rare[atomicAdd(&groups.cursors[kRareTokens], 1)] = static_cast<int>(token);
    } else {
      groups.frequent[atomicAdd(&groups.cursors[kFrequentTokens], 1)] = static_cast<int>(token);
    }
  }
}

// Leaves `places` of rare tokens at the end of their rows.
__global__ void __launch_bounds__(kThreads) PlaceRareRows(Tokens tokens, Groups groups) {
  for (int64_t row = FirstItem(); row < tokens.rows; row += ItemStride()) {
    const int token = tokens.At(row);
    if (token < 0 || groups.counts[token] > kRare) continue;
    groups.rows[atomicAdd(&groups.places[token], 1)] = static_cast<int>(row);
  }
}

// One block per frequent token lists its rows in ascending order.
__global__ void __launch_bounds__(kListThreads) PlaceFrequentRows(Tokens tokens, Groups groups) {
  __shared__ int before_warp[kListThreads / kWarpSize + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int items = groups.cursors[kFrequentTokens];
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int token = groups.frequent[item];
    int place = groups.places[token];
    for (int64_t first = 0; first < tokens.rows; first += kListThreads) {
      const int64_t row = first + threadIdx.x;
      const bool match = row < tokens.rows && tokens.At(row) == token;
      const unsigned matches = __ballot_sync(kWholeWarp, match);
      if (lane == 0) before_warp[warp + 1] = __popc(matches);
      __syncthreads();
      if (warp == 0) {
        // Running sums over the warps.
        int sum = before_warp[lane + 1];
        for (unsigned distance = 1; distance < kWarpSize; distance *= 2) {
          const int lower = __shfl_up_sync(kWholeWarp, sum, distance);
          if (lane >= static_cast<int>(distance)) sum += lower;
        }
        before_warp[lane + 1] = sum;
        if (lane == 0) before_warp[0] = 0;
      }
      __syncthreads();
      if (match) {
        const unsigned lower_lanes = (1u << lane) - 1u;
        groups.rows[place + before_warp[warp] + __popc(matches & lower_lanes)] =
            static_cast<int>(row);
      }
      place += before_warp[kListThreads / kWarpSize];
      __syncthreads();
    }
  }
}

// Bitonic sort of one value per lane, ascending.
__device__ __forceinline__ int SortLanes(int value, int lane) {
  for (int size = 2; size <= kWarpSize; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      const int other = __shfl_xor_sync(kWholeWarp, value, distance);
      const bool ascending = (lane & size) == 0;
      const bool lower = (lane & distance) == 0;
      value = ascending == lower ? min(value, other) : max(value, other);
    }
  }
  return value;
}

// sums[s] += rows[begin], rows[begin + 1], ... of dout, at the pack of columns that begins at
// column + s * kWarpSize * N. `row_at` gives the number of a row and is called by all lanes alike.
// kRows rows are loaded at a time.
template <int N, int kRows, int kPacks, typename T, typename RowAt>
__device__ __forceinline__ void AddRows(const T* __restrict__ dout, int64_t columns, int64_t column,
                                        int begin, int end, RowAt row_at,
                                        float (&sums)[kPacks][N]) {
  for (int first = begin; first < end; first += kRows) {
    // All of them first: no pack waits for the number of another's row.
    int64_t numbers[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) numbers[u] = first + u < end ? row_at(first + u) : 0;
    Pack<T, N> terms[kRows][kPacks];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (first + u >= end) continue;
      const T* row = dout + numbers[u] * columns;
#pragma unroll
      for (int s = 0; s < kPacks; ++s) {
        const int64_t start = column + s * kWarpSize * N;
        if (start < columns) terms[u][s] = LoadPack<N>(row + start);
      }
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (first + u >= end) continue;
#pragma unroll
      for (int s = 0; s < kPacks; ++s) {
        if (column + s * kWarpSize * N >= columns) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sums[s][i] += ToFloat(terms[u][s][i]);
      }
    }
  }
}

// A warp per rare token.
template <int N, typename T, typename G>
__global__ void __launch_bounds__(kThreads)
    AddRareRows(Groups groups, const T* __restrict__ dout, int64_t columns, G* dtable) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int items = groups.cursors[kRareTokens];
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  for (int item = static_cast<int>(blockIdx.x) * kWarps + warp; item < items; item += stride) {
    const int token = groups.rare[item];
    const int count = groups.counts[token];
    const int begin = groups.places[token] - count;
    constexpr int kNone = 0x7fffffff;
    const int own = SortLanes(lane < count ? groups.rows[begin + lane] : kNone, lane);
    const auto row_at = [&](int i) { return int64_t{__shfl_sync(kWholeWarp, own, i)}; };
    G* out = dtable + token * columns;
    // Most of these tokens have a row or two: packs side by side keep the loads many.
    constexpr int64_t kStep = int64_t{kWarpSize} * N;
    for (int64_t start = 0; start < columns; start += kRarePacks * kStep) {
      const int64_t column = start + lane * N;
      float sums[kRarePacks][N] = {};
#pragma unroll
      for (int s = 0; s < kRarePacks; ++s) {
        if (column + s * kStep < columns) LoadFloats<N>(out + column + s * kStep, sums[s]);
      }
      AddRows<N, 2>(dout, columns, column, 0, count, row_at, sums);
#pragma unroll
      for (int s = 0; s < kRarePacks; ++s) {
        if (column + s * kStep < columns) StoreFloats(out + column + s * kStep, sums[s]);
      }
    }
  }
}

// A block per frequent token and 32 packs of columns: each warp adds an equal share of the rows,
// then the warps' sums are added in their order.
template <int N, typename T, typename G>
__global__ void __launch_bounds__(kThreads)
    AddFrequentRows(Groups groups, const T* __restrict__ dout, int64_t columns, G* dtable) {
  __shared__ float shares[kWarps][kWarpSize * N];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t column = (int64_t{blockIdx.y} * kWarpSize + lane) * N;
  const int items = groups.cursors[kFrequentTokens];
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int token = groups.frequent[item];
    const int count = groups.counts[token];
    const int* rows = groups.rows + groups.places[token];
    const int share = (count + kWarps - 1) / kWarps;
    const int begin = min(warp * share, count);
    const int end = min(begin + share, count);
    float sums[1][N] = {};
    AddRows<N, kFrequentRows>(
        dout, columns, column, begin, end, [&](int i) { return int64_t{rows[i]}; }, sums);
#pragma unroll
    for (int i = 0; i < N; ++i) shares[warp][lane * N + i] = sums[0][i];
    __syncthreads();
    if (warp == 0 && column < columns) {
      G* out = dtable + token * columns + column;
      LoadFloats<N>(out, sums[0]);
      for (int other = 0; other < kWarps; ++other) {
#pragma unroll
        for (int i = 0; i < N; ++i) sums[0][i] += shares[other][lane * N + i];
      }
      StoreFloats(out, sums[0]);
    }
    __syncthreads();
  }
}

Groups GroupsIn(const LaunchContext& context, int64_t rows, int64_t vocab) {
  const int64_t tokens = std::min(rows, vocab);
  const int64_t needed = 2 * vocab + 2 * tokens + rows + kCursors;
  int* next = context.Scratch<int>(needed);
  const auto take = [&next](int64_t count) {
    int* taken = next;
    next += count;
    return taken;
  };
  // The first two are zeroed together.
  Groups groups{};
  groups.cursors = take(kCursors);
  groups.counts = take(vocab);
  groups.places = take(vocab);
  groups.rare = take(tokens);
  groups.frequent = take(tokens);
  groups.rows = take(rows);
  return groups;
}

template <typename T, typename G>
void AddGroups(const LaunchContext& context, const Groups& groups, const Tensor& dout,
               Tensor& dtable) {
  const int64_t rows = dout.dim(0);
  const int64_t columns = dout.dim(1);
  // As many as make 16 bytes of the wider type.
  constexpr int kPack = std::min(kPackSize<T>, kPackSize<G>);
  const bool aligned = RowsAligned<T>(columns, dout.raw(), dtable.raw());
  const int64_t tokens = std::min(rows, dtable.dim(0));
  Launch(context, aligned ? AddRareRows<kPack, T, G> : AddRareRows<1, T, G>,
         GridFor(context, tokens, kWarps, kBlocksPerMultiprocessor), kThreads, 0, groups,
         Data<const T>(dout), columns, Data<G>(dtable));
  const int64_t per_warp = int64_t{kWarpSize} * (aligned ? kPack : 1);
  const dim3 grid(GridFor(context, rows / (kRare + 1), 1, 2),
                  static_cast<unsigned>((columns + per_warp - 1) / per_warp));
  Launch(context, aligned ? AddFrequentRows<kPack, T, G> : AddFrequentRows<1, T, G>, grid, kThreads,
         0, groups, Data<const T>(dout), columns, Data<G>(dtable));
}

}  // namespace

void EmbeddingBackwardCuda(const Tensor& tokens, const Tensor& dout, int64_t vocab_start,
                           Tensor& dtable) {
  const LaunchContext context = ContextOf(dout.device());
  const int64_t rows = dout.dim(0);
  const int64_t vocab = dtable.dim(0);
  if (rows == 0 || vocab == 0) return;
  const Groups groups = GroupsIn(context, rows, vocab);
  const Tokens ids{Data<const int32_t>(tokens), rows, vocab_start, vocab};
  const auto grid = [&](int64_t items) {
    return GridFor(context, items, kThreads, kBlocksPerMultiprocessor);
  };
  FillZero(context, groups.cursors, (kCursors + vocab) * static_cast<int64_t>(sizeof(int)));
  Launch(context, CountRows, grid(rows), kThreads, 0, ids, groups);
  Launch(context, ListTokens, grid(vocab), kThreads, 0, vocab, groups);
  Launch(context, PlaceRareRows, grid(rows), kThreads, 0, ids, groups);
  // No more tokens than this are frequent.
  Launch(context, PlaceFrequentRows, GridFor(context, rows / (kRare + 1), 1, 2), kListThreads, 0,
         ids, groups);
  DispatchFloat(dout.dtype(), [&](auto* type) {
    DispatchGradient(dtable.dtype(), [&](auto* gradient) {
      AddGroups<std::remove_pointer_t<decltype(type)>, std::remove_pointer_t<decltype(gradient)>>(
          context, groups, dout, dtable);
    });
  });
}

}  // namespace trimtab

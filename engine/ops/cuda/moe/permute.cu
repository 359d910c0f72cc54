// Tokens to the rows of their experts and back. Contract in engine/ops/moe/permute.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kUnroll = 4;        // packs of a copied row that a lane has on their way at once
constexpr int64_t kChunk = 1024;  // choices that a block sorts

// Calls body(row) with this warp's rows.
template <typename Body>
__device__ __forceinline__ void ForEachRow(int64_t rows, Body body) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    body(row);
  }
}

// Calls body(column) with this lane's packs of N columns.
template <int N, typename Body>
__device__ __forceinline__ void ForEachPack(int64_t columns, Body body) {
  constexpr int64_t kStride = int64_t{kWarpSize} * N;
  for (int64_t column = threadIdx.x * N; column < columns; column += kStride) body(column);
}

dim3 WarpBlock() { return {kWarpSize, kWarps}; }

dim3 WarpGrid(const LaunchContext& context, int64_t rows) {
  return dim3(GridFor(context, rows, kWarps, kBlocksPerMultiprocessor));
}

// A choice counted from the first of some experts; -1 for one of none of them.
__device__ __forceinline__ int32_t AmongExperts(int32_t choice, const ExpertRange& experts) {
  const int64_t expert = choice - experts.first;
  return choice < 0 || expert < 0 || expert >= experts.count ? -1 : static_cast<int32_t>(expert);
}

// counts[chunk, e]: how often each expert stands in each chunk of choices.
__global__ void __launch_bounds__(kThreads)
    CountChunks(const int32_t* __restrict__ choice, int64_t choices, ExpertRange range,
                int32_t* counts) {
  const int64_t experts = range.count;
  int* const shared = SharedMemory<int>();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) shared[e] = 0;
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t end = begin + kChunk < choices ? begin + kChunk : choices;
  for (int64_t c = begin + threadIdx.x; c < end; c += kThreads) {
    const int32_t expert = AmongExperts(choice[c], range);
    if (expert >= 0) atomicAdd(&shared[expert], 1);
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    counts[int64_t{blockIdx.x} * experts + e] = shared[e];
  }
}

// One block: counts[chunk, e] becomes the first row of those choices.
__global__ void __launch_bounds__(kThreads)
    PlaceChunks(int64_t chunks, int64_t experts, int64_t padded_rows, int32_t* counts) {
  int* const totals = SharedMemory<int>();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    int sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += counts[chunk * experts + e];
    totals[e] = sum;
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    int64_t row = e * padded_rows;
    if (padded_rows == 0) {
      for (int64_t before = 0; before < e; ++before) row += totals[before];
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int count = counts[chunk * experts + e];
      counts[chunk * experts + e] = static_cast<int32_t>(row);
      row += count;
    }
  }
}

// The rows of a chunk's choices, in their order.
__global__ void __launch_bounds__(kThreads)
    PlaceChoices(const int32_t* __restrict__ choice, int64_t choices, ExpertRange experts,
                 const int32_t* __restrict__ first_rows, int32_t* row_of, int32_t* choice_of) {
  __shared__ int32_t chunk[kChunk];
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t count = begin + kChunk < choices ? kChunk : choices - begin;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    chunk[i] = AmongExperts(choice[begin + i], experts);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    if (chunk[i] < 0) {
      row_of[begin + i] = -1;
      continue;
    }
    int32_t row = first_rows[int64_t{blockIdx.x} * experts.count + chunk[i]];
    for (int64_t before = 0; before < i; ++before) row += chunk[before] == chunk[i] ? 1 : 0;
    row_of[begin + i] = row;
    choice_of[row] = static_cast<int32_t>(begin + i);
  }
}

__global__ void __launch_bounds__(kThreads) FillIds(int64_t count, int32_t value, int32_t* ids) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    ids[i] = value;
  }
}

// A block for each rank, in the order in which they came, and each of its experts: where its rows
// came and where they stand is the sum of the counts before it in either order.
__global__ void __launch_bounds__(kThreads)
    PlaceArrivals(const float* __restrict__ counts, int64_t ranks, int64_t lead,
                  int64_t all_experts, ExpertRange range, int32_t* by_expert, int32_t* by_rank) {
  __shared__ int came;
  __shared__ int stands;
  const auto count = [&](int64_t arrival, int64_t expert) {
    const int64_t of_lead = ranks / lead;
    const int64_t rank = arrival % of_lead * lead + arrival / of_lead;
    return static_cast<int>(counts[rank * all_experts + range.first + expert]);
  };
  const int64_t own_arrival = int64_t{blockIdx.x} / range.count;
  const int64_t own_expert = int64_t{blockIdx.x} % range.count;
  if (threadIdx.x == 0) {
    came = 0;
    stands = 0;
  }
  __syncthreads();
  int came_before = 0;
  int stand_before = 0;
  for (int64_t i = threadIdx.x; i < ranks * range.count; i += kThreads) {
    const int64_t arrival = i / range.count;
    const int64_t expert = i % range.count;
    const bool earlier = arrival < own_arrival;
    const bool lower = expert < own_expert;
    if (earlier || (arrival == own_arrival && lower)) came_before += count(arrival, expert);
    if (lower || (expert == own_expert && earlier)) stand_before += count(arrival, expert);
  }
  atomicAdd(&came, came_before);
  atomicAdd(&stands, stand_before);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count(own_arrival, own_expert); i += kThreads) {
    by_expert[stands + i] = static_cast<int32_t>(came + i);
    by_rank[came + i] = static_cast<int32_t>(stands + i);
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    PermuteKernel(const T* __restrict__ x, const int32_t* __restrict__ choice_of, int64_t topk,
                  int64_t rows, int64_t columns, T* __restrict__ out) {
  ForEachRow(rows, [&](int64_t row) {
    const int64_t choice = choice_of[row];
    const T* from = x + (choice < 0 ? 0 : choice / topk) * columns;
    constexpr int64_t kStride = int64_t{kWarpSize} * N;
    for (int64_t first = threadIdx.x * N; first < columns; first += kUnroll * kStride) {
      Pack<T, N> packs[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (choice >= 0 && column < columns) packs[u] = LoadPack<N>(from + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kStride;
        if (column < columns) StorePack(out + row * columns + column, packs[u]);
      }
    }
  });
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    UnpermuteKernel(const T* __restrict__ rows, const int32_t* __restrict__ row_of,
                    const float* __restrict__ weights, int64_t topk, int64_t tokens,
                    int64_t columns, T* __restrict__ y) {
  ForEachRow(tokens, [&](int64_t token) {
    ForEachPack<N>(columns, [&](int64_t column) {
      float sums[N] = {};
      for (int64_t c = token * topk; c < (token + 1) * topk; ++c) {
        if (row_of[c] < 0) continue;
        float values[N];
        LoadFloats<N>(rows + row_of[c] * columns + column, values);
        const float weight = weights != nullptr ? weights[c] : 1.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += weight * values[i];
      }
      StoreFloats(y + token * columns + column, sums);
    });
  });
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    RowsBackwardKernel(const T* __restrict__ dy, const int32_t* __restrict__ choice_of,
                       const float* __restrict__ weights, int64_t topk, int64_t rows,
                       int64_t columns, T* __restrict__ drows) {
  ForEachRow(rows, [&](int64_t row) {
    const int64_t choice = choice_of[row];
    const T* from = dy + (choice < 0 ? 0 : choice / topk) * columns;
    const float weight = choice < 0 ? 0.0f : weights[choice];
    ForEachPack<N>(columns, [&](int64_t column) {
      float values[N] = {};
      if (choice >= 0) {
        LoadFloats<N>(from + column, values);
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] *= weight;
      }
      StoreFloats(drows + row * columns + column, values);
    });
  });
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    WeightsBackwardKernel(const T* __restrict__ dy, const T* __restrict__ rows,
                          const int32_t* __restrict__ row_of, int64_t topk, int64_t choices,
                          int64_t columns, float* __restrict__ dweights) {
  ForEachRow(choices, [&](int64_t c) {
    float sum = 0;
    if (row_of[c] >= 0) {
      ForEachPack<N>(columns, [&](int64_t column) {
        float left[N];
        float right[N];
        LoadFloats<N>(dy + c / topk * columns + column, left);
        LoadFloats<N>(rows + row_of[c] * columns + column, right);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += left[i] * right[i];
      });
    }
    sum = WarpSum(sum);
    if (threadIdx.x == 0) dweights[c] = sum;
  });
}

void SortByExpertCuda(const Tensor& choice, const ExpertRange& experts, int64_t padded_rows,
                      Tensor& row_of, Tensor& choice_of) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t choices = choice.numel();
  const int64_t chunks = (choices + kChunk - 1) / kChunk;
  const auto grid = dim3(static_cast<unsigned>(chunks));
  const size_t shared = static_cast<size_t>(experts.count) * sizeof(int);
  int32_t* const counts = context.Scratch<int32_t>(chunks * experts.count);
  Launch(context, FillIds,
         dim3(GridFor(context, choice_of.numel(), kThreads, kBlocksPerMultiprocessor)), kThreads, 0,
         choice_of.numel(), -1, choice_of.i32());
  Launch(context, CountChunks, grid, kThreads, shared, choice.i32(), choices, experts, counts);
  Launch(context, PlaceChunks, dim3(1), kThreads, shared, chunks, experts.count, padded_rows,
         counts);
  Launch(context, PlaceChoices, grid, kThreads, 0, choice.i32(), choices, experts, counts,
         row_of.i32(), choice_of.i32());
}

void OrderArrivalsCuda(const Tensor& counts, int64_t lead, const ExpertRange& experts,
                       Tensor& by_expert, Tensor& by_rank) {
  const LaunchContext context = ContextOf(counts.device());
  const int64_t ranks = counts.dim(0);
  Launch(context, PlaceArrivals, dim3(static_cast<unsigned>(ranks * experts.count)), kThreads, 0,
         counts.f32(), ranks, lead, counts.dim(1), experts, by_expert.i32(), by_rank.i32());
}

void PermuteCuda(const Tensor& x, const Tensor& choice_of, int64_t topk, Tensor& rows) {
  const LaunchContext context = ContextOf(x.device());
  const int64_t columns = x.dim(1);
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(columns, x.raw(), rows.raw());
    Launch(context, aligned ? PermuteKernel<kPackSize<T>, T> : PermuteKernel<1, T>,
           WarpGrid(context, rows.dim(0)), WarpBlock(), 0, Data<const T>(x), choice_of.i32(), topk,
           rows.dim(0), columns, Data<T>(rows));
  });
}

void UnpermuteCuda(const Tensor& rows, const Tensor& row_of, const Tensor& weights, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  const int64_t columns = y.dim(1);
  DispatchFloat(y.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(columns, rows.raw(), y.raw());
    Launch(context, aligned ? UnpermuteKernel<kPackSize<T>, T> : UnpermuteKernel<1, T>,
           WarpGrid(context, y.dim(0)), WarpBlock(), 0, Data<const T>(rows), row_of.i32(),
           Data<const float>(weights), row_of.dim(1), y.dim(0), columns, Data<T>(y));
  });
}

void UnpermuteBackwardCuda(const Tensor& dy, const Tensor& rows, const Tensor& row_of,
                           const Tensor& choice_of, const Tensor& weights, Tensor& drows,
                           Tensor& dweights) {
  const LaunchContext context = ContextOf(dy.device());
  const int64_t columns = dy.dim(1);
  const int64_t topk = row_of.dim(1);
  DispatchFloat(dy.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const bool aligned = RowsAligned<T>(columns, dy.raw(), rows.raw(), drows.raw());
    Launch(context, aligned ? RowsBackwardKernel<kPack, T> : RowsBackwardKernel<1, T>,
           WarpGrid(context, rows.dim(0)), WarpBlock(), 0, Data<const T>(dy), choice_of.i32(),
           weights.f32(), topk, rows.dim(0), columns, Data<T>(drows));
    Launch(context, aligned ? WeightsBackwardKernel<kPack, T> : WeightsBackwardKernel<1, T>,
           WarpGrid(context, row_of.numel()), WarpBlock(), 0, Data<const T>(dy),
           Data<const T>(rows), row_of.i32(), topk, row_of.numel(), columns, dweights.f32());
  });
}

}  // namespace

void FillPermuteOps(CudaOps& ops) {
  ops.sort_by_expert = SortByExpertCuda;
  ops.order_arrivals = OrderArrivalsCuda;
  ops.permute = PermuteCuda;
  ops.unpermute = UnpermuteCuda;
  ops.unpermute_backward = UnpermuteBackwardCuda;
}

}  // namespace trimtab

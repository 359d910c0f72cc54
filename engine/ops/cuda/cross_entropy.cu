// Softmax cross-entropy: one block per row of logits, packs of 16 bytes. The three passes walk the
// rows in turn forwards, backwards and forwards: what the pass before read last is still in the L2
// cache, tens of megabytes of it.
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

// Columns of a row of logits: `used` of them are ids of the vocabulary, from `first_id` on; what
// follows is padding.
struct Row {
  int64_t columns;
  int64_t used;
  int64_t first_id;
};

Row RowOf(const Tensor& logits, const VocabShard& shard) {
  const int64_t columns = logits.dim(1);
  return {columns, std::clamp<int64_t>(shard.valid - shard.start, 0, columns), shard.start};
}

// Calls take(value) for each of the first `used` logits of the row, in an order that depends on
// neither N nor anything but the thread.
template <int N, typename T, typename Take>
__device__ __forceinline__ void ForEachLogit(const T* __restrict__ x, int64_t used, Take take) {
  constexpr int kGroup = kPackSize<T>;
  constexpr int64_t kStride = int64_t{kThreads} * kGroup;
  for (int64_t first = threadIdx.x * kGroup; first < used; first += kUnroll * kStride) {
    Pack<T, kGroup> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = first + u * kStride;
      if (N == kGroup && start + kGroup <= used) {
        loaded[u] = LoadPack<kGroup>(x + start);
      } else {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          // Below every logit: neither the largest nor of any weight.
          loaded[u][i] = start + i < used ? x[start + i] : FromFloat<T>(-INFINITY);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) take(ToFloat(loaded[u][i]));
    }
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    MaxKernel(Row row, const T* __restrict__ logits, float* __restrict__ row_max) {
  float largest = -INFINITY;
  ForEachLogit<N>(logits + blockIdx.x * row.columns, row.used,
                  [&](float logit) { largest = fmaxf(largest, logit); });
  largest = BlockMax(largest);
  if (threadIdx.x == 0) row_max[blockIdx.x] = largest;
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    SumKernel(Row row, const T* __restrict__ logits, const int32_t* __restrict__ targets,
              const float* __restrict__ row_max, float* __restrict__ sums) {
  const unsigned number = gridDim.x - 1 - blockIdx.x;
  const T* x = logits + number * row.columns;
  const float largest = row_max[number];
  float sum = 0;
  ForEachLogit<N>(x, row.used, [&](float logit) { sum += __expf(logit - largest); });
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    const int64_t column = targets[number] - row.first_id;
    const bool here = column >= 0 && column < row.used;
    sums[number] = sum;
    sums[gridDim.x + number] = here ? ToFloat(x[column]) - largest : 0.0f;
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    GradKernel(Row row, const int32_t* __restrict__ targets, const float* __restrict__ row_max,
               const float* __restrict__ sums, const float* __restrict__ scale, SoftCap soft_cap,
               T* __restrict__ logits, float* __restrict__ losses) {
  T* x = logits + blockIdx.x * row.columns;
  const int64_t target = targets[blockIdx.x] - row.first_id;
  const float largest = row_max[blockIdx.x];
  const float sum = sums[blockIdx.x];
  const float one = *scale;
  const float factor = one / sum;
  const auto gradient = [&](float logit, int64_t column) {
    if (column >= row.used) return 0.0f;
    const float softmax = factor * __expf(logit - largest);
    return (column == target ? softmax - one : softmax) * soft_cap.Derivative(logit);
  };
  constexpr int64_t kStride = int64_t{kThreads} * N;
  // Rows of several packs are whole packs: with N above 1, columns is a multiple of it.
  for (int64_t first = threadIdx.x * N; first < row.columns; first += kUnroll * kStride) {
    Pack<T, N> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = first + u * kStride;
      if (start < row.columns) loaded[u] = LoadPack<N>(x + start);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = first + u * kStride;
      if (start < row.columns) {
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = gradient(ToFloat(loaded[u][i]), start + i);
        StoreFloats(x + start, values);
      }
    }
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) - sums[gridDim.x + blockIdx.x];
}

void MaxCuda(const Tensor& logits, const VocabShard& shard, Tensor& row_max) {
  const LaunchContext context = ContextOf(logits.device());
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(logits.dim(1), logits.raw());
    Launch(context, aligned ? MaxKernel<kPackSize<T>, T> : MaxKernel<1, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, 0, RowOf(logits, shard),
           Data<const T>(logits), Data<float>(row_max));
  });
}

void SumCuda(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
             const Tensor& row_max, Tensor& sums) {
  const LaunchContext context = ContextOf(logits.device());
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(logits.dim(1), logits.raw());
    Launch(context, aligned ? SumKernel<kPackSize<T>, T> : SumKernel<1, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, 0, RowOf(logits, shard),
           Data<const T>(logits), Data<const int32_t>(targets), Data<const float>(row_max),
           Data<float>(sums));
  });
}

void GradCuda(const Tensor& targets, const VocabShard& shard, const Tensor& row_max,
              const Tensor& sums, const Tensor& scale, Tensor& logits, Tensor& losses,
              const SoftCap& soft_cap) {
  const LaunchContext context = ContextOf(logits.device());
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(logits.dim(1), logits.raw());
    Launch(context, aligned ? GradKernel<kPackSize<T>, T> : GradKernel<1, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, 0, RowOf(logits, shard),
           Data<const int32_t>(targets), Data<const float>(row_max), Data<const float>(sums),
           Data<const float>(scale), soft_cap, Data<T>(logits), Data<float>(losses));
  });
}

}  // namespace

void FillCrossEntropyOps(CudaOps& ops) {
  ops.cross_entropy_max = MaxCuda;
  ops.cross_entropy_sum = SumCuda;
  ops.cross_entropy_grad = GradCuda;
}

}  // namespace trimtab

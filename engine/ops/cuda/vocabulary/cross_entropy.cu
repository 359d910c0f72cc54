// Softmax cross-entropy: one block per row of logits, packs of 16 bytes.
//
// The first pass over a row finds the largest logit and the sum of exponentials together: each
// thread adds up by the largest that it has met so far. With the whole vocabulary at hand the block
// keeps the row in shared memory meanwhile, and its second pass reads it from there: every thread
// what it has stored itself. What of a row does not fit is read again, from the L2 cache if need
// be.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 384;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kUnroll = 4;

// Of a row: two such blocks fit a multiprocessor of sm_90, and one that of every GPU since sm_80.
// All of a row of GPT-2's padded vocabulary in 16 bits.
constexpr int64_t kKeptBytes = 50304 * 2;

// Below every logit, and finite: no difference to it is NaN.
constexpr float kLowest = -3.402823466e+38f;

// Columns of a row of logits: `used` of them are ids of the vocabulary, from `first_id` on; what
// follows is padding.
struct Row {
  int columns;
  int used;
  int64_t first_id;

  /// The column of a target, or -1.
  __device__ __forceinline__ int ColumnOf(int32_t target) const {
    const int64_t column = target - first_id;
    return column >= 0 && column < used ? static_cast<int>(column) : -1;
  }
};

Row RowOf(const Tensor& logits, const VocabShard& shard) {
  const int64_t columns = logits.dim(1);
  return {static_cast<int>(columns),
          static_cast<int>(std::clamp<int64_t>(shard.valid - shard.start, 0, columns)),
          shard.start};
}

/// use(start, pack) with every pack load(start) of `columns` columns that this thread has, several
/// of which are loaded before the first is used.
template <typename T, typename Load, typename Use>
__device__ __forceinline__ void ForEachPack(int columns, Load load, Use use) {
  constexpr int kGroup = kPackSize<T>;
  constexpr int kStride = kThreads * kGroup;
  const int first = static_cast<int>(threadIdx.x) * kGroup;
  for (int64_t next = first; next < columns; next += kUnroll * kStride) {
    Pack<T, kGroup> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = next + u * kStride;
      if (start < columns) packs[u] = load(static_cast<int>(start));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = next + u * kStride;
      if (start < columns) use(static_cast<int>(start), packs[u]);
    }
  }
}

/// Logits [start, start + a pack) of a row; zeros past its end. kAligned rows are whole packs.
template <bool kAligned, typename T>
__device__ __forceinline__ Pack<T, kPackSize<T>> LoadLogits(const Row& row, const T* x, int start) {
  constexpr int kGroup = kPackSize<T>;
  if constexpr (kAligned) {
    return LoadPack<kGroup>(x + start);
  } else {
    Pack<T, kGroup> pack;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      pack[i] = start + i < row.columns ? x[start + i] : FromFloat<T>(0.0f);
    }
    return pack;
  }
}

/// Of some logits: the largest, and the sum of exp(logit - largest).
struct LogitSum {
  float largest = kLowest;
  float sum = 0;

  /// Adds the first `count` of a pack, or all of it.
  template <typename T, int N>
  __device__ __forceinline__ void Add(const Pack<T, N>& pack, int count) {
    float values[N];
    float highest = largest;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = ToFloat(pack[i]);
      if (i < count) highest = fmaxf(highest, values[i]);
    }
    if (highest > largest) {
      sum *= __expf(largest - highest);
      largest = highest;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) sum += __expf(values[i] - largest);
    }
  }
};

/// Of the used logits of a row, by the whole block. The first `kept` columns, whole packs, also go
/// to `store`.
template <bool kAligned, typename T>
__device__ __forceinline__ LogitSum SumRow(const Row& row, const T* x, int kept, T* store) {
  constexpr int kGroup = kPackSize<T>;
  LogitSum own;
  ForEachPack<T>(
      row.used, [&](int start) { return LoadLogits<kAligned>(row, x, start); },
      [&](int start, const Pack<T, kGroup>& pack) {
        if (start < kept) StorePack(store + start, pack);
        if (start + kGroup <= row.used) {
          own.Add(pack, kGroup);
        } else {
          own.Add(pack, row.used - start);
        }
      });
  LogitSum all;
  all.largest = BlockMax(own.largest);
  all.sum = BlockSum(own.sum * __expf(own.largest - all.largest));
  return all;
}

/// What a gradient is made with, beside the logits.
struct GradientScale {
  const float* scale;
  SoftCap soft_cap;
  bool capped;
};

GradientScale ScaleOf(const Tensor& scale, const SoftCap& soft_cap) {
  return {Data<const float>(scale), soft_cap, !soft_cap.identity()};
}

/// Turns the logits of a row into their gradient, times *by.scale, or 0 where the row has no target
/// (`none`). The first `kept` columns come from `store`.
template <bool kAligned, typename T>
__device__ __forceinline__ void WriteGradient(const Row& row, int target, bool none,
                                              const LogitSum& all, const GradientScale& by,
                                              int kept, const T* store, T* x) {
  constexpr int kGroup = kPackSize<T>;
  const float one = none ? 0.0f : *by.scale;
  const float factor = one / all.sum;
  ForEachPack<T>(
      row.columns,
      [&](int start) {
        // Padding was not stored.
        const bool stored = start < kept && start < row.used;
        return stored ? LoadPack<kGroup>(store + start) : LoadLogits<kAligned>(row, x, start);
      },
      [&](int start, const Pack<T, kGroup>& pack) {
        float values[kGroup];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          values[i] = factor * __expf(ToFloat(pack[i]) - all.largest);
        }
        if (target >= start && target < start + kGroup) {
#pragma unroll
          for (int i = 0; i < kGroup; ++i) values[i] -= start + i == target ? one : 0.0f;
        }
        if (by.capped) {
#pragma unroll
          for (int i = 0; i < kGroup; ++i) values[i] *= by.soft_cap.Derivative(ToFloat(pack[i]));
        }
        if (start + kGroup > row.used) {
#pragma unroll
          for (int i = 0; i < kGroup; ++i) values[i] = start + i < row.used ? values[i] : 0.0f;
        }
        if constexpr (kAligned) {
          StoreFloats(x + start, values);
        } else {
#pragma unroll
          for (int i = 0; i < kGroup; ++i) {
            if (start + i < row.columns) x[start + i] = FromFloat<T>(values[i]);
          }
        }
      });
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    LossKernel(Row row, int kept, const int32_t* __restrict__ targets, GradientScale by, T* logits,
               float* __restrict__ losses) {
  T* store = SharedMemory<T>();
  T* x = logits + blockIdx.x * static_cast<int64_t>(row.columns);
  const int target = row.ColumnOf(targets[blockIdx.x]);
  // Before any thread writes to the row: the sums below wait for all of them.
  const float target_logit = target >= 0 ? ToFloat(x[target]) : 0.0f;
  const LogitSum all = SumRow<kAligned>(row, x, kept, store);
  const bool none = targets[blockIdx.x] < 0;
  WriteGradient<kAligned>(row, target, none, all, by, kept, store, x);
  if (threadIdx.x != 0) return;
  losses[blockIdx.x] = none ? 0.0f : logf(all.sum) - (target_logit - all.largest);
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    PartsKernel(Row row, const T* __restrict__ logits, const int32_t* __restrict__ targets,
                float* __restrict__ parts) {
  const T* x = logits + blockIdx.x * static_cast<int64_t>(row.columns);
  const LogitSum all = SumRow<kAligned, T>(row, x, 0, nullptr);
  if (threadIdx.x != 0) return;
  const int target = row.ColumnOf(targets[blockIdx.x]);
  parts[blockIdx.x] = all.largest;
  parts[gridDim.x + blockIdx.x] = all.sum;
  parts[2 * gridDim.x + blockIdx.x] = target >= 0 ? ToFloat(x[target]) : 0.0f;
}

// Goes backwards over the rows: those that PartsKernel has read last are still in the L2 cache.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    GradKernel(Row row, int64_t shards, const int32_t* __restrict__ targets,
               const float* __restrict__ parts, GradientScale by, T* logits,
               float* __restrict__ losses) {
  const unsigned number = gridDim.x - 1 - blockIdx.x;
  const LossParts all = JoinLossParts(parts + number, shards, gridDim.x);
  const bool none = targets[number] < 0;
  WriteGradient<kAligned, T>(row, row.ColumnOf(targets[number]), none, {all.largest, all.sum}, by,
                             0, nullptr, logits + number * static_cast<int64_t>(row.columns));
  if (threadIdx.x != 0) return;
  losses[number] = none ? 0.0f : logf(all.sum) - (all.target - all.largest);
}

void LossCuda(const Tensor& targets, int64_t vocab_size, const Tensor& scale, Tensor& logits,
              Tensor& losses, const SoftCap& soft_cap) {
  const LaunchContext context = ContextOf(logits.device());
  const Row row = RowOf(logits, {.start = 0, .valid = vocab_size});
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int64_t kGroup = kPackSize<T>;
    constexpr int64_t kMost = kKeptBytes / static_cast<int64_t>(sizeof(T)) / kGroup * kGroup;
    const int64_t kept = std::min(kMost, (row.columns + kGroup - 1) / kGroup * kGroup);
    const bool aligned = RowsAligned<T>(row.columns, logits.raw());
    Launch(context, aligned ? LossKernel<true, T> : LossKernel<false, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, static_cast<size_t>(kept) * sizeof(T),
           row, static_cast<int>(kept), Data<const int32_t>(targets), ScaleOf(scale, soft_cap),
           Data<T>(logits), Data<float>(losses));
  });
}

void PartsCuda(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
               Tensor& parts) {
  const LaunchContext context = ContextOf(logits.device());
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(logits.dim(1), logits.raw());
    Launch(context, aligned ? PartsKernel<true, T> : PartsKernel<false, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, 0, RowOf(logits, shard),
           Data<const T>(logits), Data<const int32_t>(targets), Data<float>(parts));
  });
}

void GradCuda(const Tensor& targets, const VocabShard& shard, const Tensor& parts,
              const Tensor& scale, Tensor& logits, Tensor& losses, const SoftCap& soft_cap) {
  const LaunchContext context = ContextOf(logits.device());
  DispatchFloat(logits.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(logits.dim(1), logits.raw());
    Launch(context, aligned ? GradKernel<true, T> : GradKernel<false, T>,
           static_cast<unsigned>(logits.dim(0)), kThreads, 0, RowOf(logits, shard), parts.dim(0),
           Data<const int32_t>(targets), Data<const float>(parts), ScaleOf(scale, soft_cap),
           Data<T>(logits), Data<float>(losses));
  });
}

}  // namespace

void FillCrossEntropyOps(CudaOps& ops) {
  ops.cross_entropy = LossCuda;
  ops.cross_entropy_parts = PartsCuda;
  ops.cross_entropy_grad = GradCuda;
}

}  // namespace trimtab

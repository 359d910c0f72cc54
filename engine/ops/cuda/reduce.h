// Reductions over the threads of a warp and of a block. The order of additions is fixed, so the
// result is the same in every run.
#pragma once

#include "engine/ops/cuda/types.h"

namespace trimtab {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

struct SumOf {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// Ignores NaN, as fmaxf does.
struct MaxOf {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// All lanes get the result. All 32 lanes of the warp must call it.
template <typename T, typename Op>
__device__ __forceinline__ T WarpReduce(T value, Op op) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}
template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
  return WarpReduce(value, SumOf{});
}
__device__ __forceinline__ float WarpMax(float value) { return WarpReduce(value, MaxOf{}); }

/// All threads of the block get the result, and all must call it: blockDim is one-dimensional and a
/// multiple of 32. T is float, double or an integer of 4 or 8 bytes; op(identity, x) is x.
template <typename T, typename Op>
__device__ __forceinline__ T BlockReduce(T value, Op op, T identity) {
  __shared__ T partial[kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpReduce(value, op);
  __syncthreads();  // the last call's result has been read by all
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return WarpReduce(lane < warps ? partial[lane] : identity, op);
}
template <typename T>
__device__ __forceinline__ T BlockSum(T value) {
  return BlockReduce(value, SumOf{}, T{});
}
__device__ __forceinline__ float BlockMax(float value) {
  return BlockReduce(value, MaxOf{}, -INFINITY);
}

}  // namespace trimtab

// Forward kernels of LayerNorm and RMSNorm, over where the result goes: shared by the plain op and
// by the one that writes fp8. Contract in engine/ops/norm.h.
#pragma once

#include "engine/ops/cuda/kernel.h"

namespace trimtab {

/// What is added to weights that are stored less 1, and to others.
inline float OffsetOf(bool weight_plus_one) { return weight_plus_one ? 1.0f : 0.0f; }

template <typename T>
struct NormInput {
  const T* x;
  const T* weight;
  const T* bias;  // LayerNorm only; or null
  float* mean;    // LayerNorm only
  float* rstd;
  int64_t rows;
  int columns;
  float epsilon;
  float weight_offset;  // added to the weight
};

/// Result in the type of x.
template <typename T>
struct PlainRows {
  T* y;

  __device__ __forceinline__ void Begin() {}
  template <int N>
  __device__ __forceinline__ void Store(int64_t index, const float (&values)[N]) {
    StoreFloats(y + index, values);
  }
  __device__ __forceinline__ void Finish() {}
};

/// Adds each of `values` over the kThreads threads that share a row: a warp, or the whole block.
/// `turn` is one further at each call: two sets of partial sums make one barrier per call enough.
template <int kThreads, int kValues>
__device__ __forceinline__ void RowSums(float (&values)[kValues], int turn) {
#pragma unroll
  for (int k = 0; k < kValues; ++k) values[k] = WarpSum(values[k]);
  if constexpr (kThreads > kWarpSize) {
    constexpr int kWarps = kThreads / kWarpSize;
    __shared__ float partial[2][kValues][kWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int set = turn % 2;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      if (lane == 0) partial[set][k][warp] = values[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      values[k] = partial[set][k][lane % kWarps];
#pragma unroll
      for (int distance = kWarps / 2; distance > 0; distance /= 2) {
        values[k] += __shfl_xor_sync(kWholeWarp, values[k], distance);
      }
    }
  }
}

/// Threads of a block whose rows belong to kThreads threads each.
template <int kThreads>
inline constexpr int kNormBlock = kThreads == kWarpSize ? 128 : kThreads;

/// Threads that a multiprocessor runs at once: what bounds the registers of each.
template <bool kCentered>
inline constexpr int kNormResidentThreads = kCentered ? 512 : 768;

/// Packs of a row that one thread holds in registers.
inline constexpr int kNormPacks = 4;

/// Rows of up to kThreads * kNormPacks packs, each read once. A block goes over many rows: the next
/// is on its way while one is worked on, and the weights stay in the multiprocessor's cache.
template <bool kCentered, int kThreads, typename T, typename Output>
__global__ void __launch_bounds__(kNormBlock<kThreads>,
                                  kNormResidentThreads<kCentered> / kNormBlock<kThreads>)
    NormForwardKernel(NormInput<T> in, Output output) {
  constexpr int kN = kPackSize<T>;
  constexpr int kRowsPerBlock = kNormBlock<kThreads> / kThreads;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  const int64_t stride = int64_t{gridDim.x} * kRowsPerBlock;
  const float count = static_cast<float>(in.columns);
  Pack<T, kN> next[kNormPacks];
  int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + static_cast<int>(threadIdx.x) / kThreads;
  output.Begin();
#pragma unroll
  for (int i = 0; i < kNormPacks; ++i) {
    const int column = (lane + i * kThreads) * kN;
    if (column >= in.columns) continue;
    if (row < in.rows) next[i] = LoadPack<kN>(in.x + row * in.columns + column);
  }
  int turn = 0;
  for (; row < in.rows; row += stride) {
    Pack<T, kN> x[kNormPacks];
    float sum[1] = {0.0f};
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns) continue;
      x[i] = next[i];
      if (row + stride < in.rows) {
        next[i] = LoadPack<kN>(in.x + (row + stride) * in.columns + column);
      }
      if constexpr (kCentered) {
#pragma unroll
        for (int j = 0; j < kN; ++j) sum[0] += ToFloat(x[i][j]);
      }
    }
    float mean = 0.0f;
    if constexpr (kCentered) {
      RowSums<kThreads>(sum, turn++);
      mean = sum[0] / count;
      sum[0] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      if ((lane + i * kThreads) * kN >= in.columns) continue;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float difference = ToFloat(x[i][j]) - mean;
        sum[0] += difference * difference;
      }
    }
    RowSums<kThreads>(sum, turn++);
    const float rstd = 1.0f / sqrtf(sum[0] / count + in.epsilon);
    if (lane == 0) {
      if constexpr (kCentered) in.mean[row] = mean;
      in.rstd[row] = rstd;
    }
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns) continue;
      float values[kN];
      const Pack<T, kN> weight = LoadPack<kN>(in.weight + column);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        values[j] = (ToFloat(x[i][j]) - mean) * rstd * (ToFloat(weight[j]) + in.weight_offset);
      }
      if constexpr (kCentered) {
        if (in.bias != nullptr) {
          const Pack<T, kN> bias = LoadPack<kN>(in.bias + column);
#pragma unroll
          for (int j = 0; j < kN; ++j) values[j] += ToFloat(bias[j]);
        }
      }
      output.Store(row * in.columns + column, values);
    }
  }
  output.Finish();
}

inline constexpr int kAnyWidthThreads = 256;

/// Rows of any width at any address: a block each, read two or three times.
template <bool kCentered, typename T, typename Output>
__global__ void __launch_bounds__(kAnyWidthThreads)
    NormForwardAnyWidth(NormInput<T> in, Output output) {
  const float count = static_cast<float>(in.columns);
  output.Begin();
  int turn = 0;
  for (int64_t row = blockIdx.x; row < in.rows; row += gridDim.x) {
    const T* x = in.x + row * in.columns;
    float mean = 0.0f;
    if constexpr (kCentered) {
      float sum[1] = {0.0f};
      for (int i = static_cast<int>(threadIdx.x); i < in.columns; i += kAnyWidthThreads) {
        sum[0] += ToFloat(x[i]);
      }
      RowSums<kAnyWidthThreads>(sum, turn++);
      mean = sum[0] / count;
    }
    float squares[1] = {0.0f};
    for (int i = static_cast<int>(threadIdx.x); i < in.columns; i += kAnyWidthThreads) {
      const float difference = ToFloat(x[i]) - mean;
      squares[0] += difference * difference;
    }
    RowSums<kAnyWidthThreads>(squares, turn++);
    const float rstd = 1.0f / sqrtf(squares[0] / count + in.epsilon);
    if (threadIdx.x == 0) {
      if constexpr (kCentered) in.mean[row] = mean;
      in.rstd[row] = rstd;
    }
    for (int i = static_cast<int>(threadIdx.x); i < in.columns; i += kAnyWidthThreads) {
      float values[1] = {(ToFloat(x[i]) - mean) * rstd *
                         (ToFloat(in.weight[i]) + in.weight_offset)};
      if constexpr (kCentered) {
        if (in.bias != nullptr) values[0] += ToFloat(in.bias[i]);
      }
      output.Store(row * in.columns + i, values);
    }
  }
  output.Finish();
}

/// `aligned`: packs may be used on every row of every matrix and on the weights.
template <bool kCentered, typename T, typename Output>
void LaunchNormForward(const LaunchContext& context, const NormInput<T>& in, const Output& output,
                       bool aligned) {
  const auto launch = [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    constexpr int kBlock = kNormBlock<kThreads>;
    const unsigned grid =
        GridFor(context, in.rows, kBlock / kThreads, kNormResidentThreads<kCentered> / kBlock);
    Launch(context, NormForwardKernel<kCentered, kThreads, T, Output>, dim3(grid), dim3(kBlock), 0,
           in, output);
  };
  const int64_t packs = in.columns / kPackSize<T>;
  if (!aligned || packs > 512 * kNormPacks) {
    Launch(context, NormForwardAnyWidth<kCentered, T, Output>,
           dim3(GridFor(context, in.rows, 1, 8)), dim3(kAnyWidthThreads), 0, in, output);
  } else if (packs <= 32 * kNormPacks) {
    launch(std::integral_constant<int, 32>{});
  } else if (packs <= 128 * kNormPacks) {
    launch(std::integral_constant<int, 128>{});
  } else if (packs <= 256 * kNormPacks) {
    launch(std::integral_constant<int, 256>{});
  } else {
    launch(std::integral_constant<int, 512>{});
  }
}

}  // namespace trimtab

// Forward kernels of LayerNorm and RMSNorm, over where the result goes: shared by the plain op and
// by the one that writes fp8. Contract in engine/ops/norm/norm.h.
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

/// The most rows that AnyWidth kernels make between two calls of an output's Flush.
inline constexpr int kMostNormRows = 32;

/// Where a thread's values are: in the matrix, in the rows that its block makes, and in the
/// columns.
struct NormPlace {
  int64_t index;
  int row;
  int column;
};

/// Result in the type of x: an output of the kernels below. An output has
///   kBlock, kResident    threads of a block whose rows belong to kThreads threads each, and
///   threads
///                        that a multiprocessor runs at once: what bounds the registers of each
///   Cut(context, at once, rows, columns), SharedBytes()   on the host, before the launch
///   Rows(at_once)        rows that a block makes between two calls of Flush, a multiple of the
///                        `at_once` that it works on at the same time
///   Columns(columns)     of these rows, columns that it makes between two calls, if it has to part
///                        them
///   Begin(), Store(place, values), Flush(first row, first column), Finish()
/// All threads of a block call Begin, Flush and Finish.
template <typename T>
struct PlainRows {
  static constexpr int Block(int threads) { return threads == kWarpSize ? 128 : threads; }
  static constexpr int Resident(bool centered, int /*threads*/) { return centered ? 512 : 640; }

  T* y;

  void Cut(const LaunchContext& /*context*/, int /*at_once*/, int64_t /*rows*/,
           int64_t /*columns*/) {}
  size_t SharedBytes() const { return 0; }

  TRIMTAB_HOST_DEVICE int Rows(int at_once) const { return at_once; }
  __device__ __forceinline__ int Columns(int columns) const { return columns; }
  __device__ __forceinline__ void Begin() {}
  template <int N>
  __device__ __forceinline__ void Store(const NormPlace& place, const float (&values)[N]) {
    StoreFloats(y + place.index, values);
  }
  __device__ __forceinline__ void Flush(int64_t /*row*/, int /*column*/) {}
  __device__ __forceinline__ void Finish() {}
};

/// Adds each of `values` over the kThreads threads that share a row: a warp, or some of a block of
/// kBlock, all of whose threads must call it. `turn` is one further at each call: two sets of
/// partial sums make one barrier per call enough.
template <int kThreads, int kBlock, int kValues>
__device__ __forceinline__ void RowSums(float (&values)[kValues], int turn) {
#pragma unroll
  for (int k = 0; k < kValues; ++k) values[k] = WarpSum(values[k]);
  if constexpr (kThreads > kWarpSize) {
    constexpr int kWarps = kThreads / kWarpSize;
    __shared__ float partial[2][kValues][kBlock / kWarpSize];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int set = turn % 2;
    const int first = kThreads == kBlock ? 0 : warp / kWarps * kWarps;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      if (lane == 0) partial[set][k][warp] = values[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      values[k] = partial[set][k][first + lane % kWarps];
#pragma unroll
      for (int distance = kWarps / 2; distance > 0; distance /= 2) {
        values[k] += __shfl_xor_sync(kWholeWarp, values[k], distance);
      }
    }
  }
}

/// Packs of a row that one thread holds in registers.
inline constexpr int kNormPacks = 4;

/// Rows of up to kThreads * kNormPacks packs, each read once. A block goes over many rows: the next
/// is on its way while one is worked on, and the weights stay in the multiprocessor's cache.
template <bool kCentered, int kThreads, typename T, typename Output>
__global__ void __launch_bounds__(Output::Block(kThreads),
                                  Output::Resident(kCentered, kThreads) / Output::Block(kThreads))
    NormForwardKernel(NormInput<T> in, Output output) {
  constexpr int kN = kPackSize<T>;
  constexpr int kBlock = Output::Block(kThreads);
  constexpr int kAtOnce = kBlock / kThreads;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  const int group = kAtOnce == 1 ? 0 : static_cast<int>(threadIdx.x) / kThreads;
  const int rows = output.Rows(kAtOnce);
  const int64_t stride = int64_t{gridDim.x} * rows;
  const float count = static_cast<float>(in.columns);
  Pack<T, kN> next[kNormPacks];
  output.Begin();
  const auto load_next = [&](int64_t row, int i) {
    const int column = (lane + i * kThreads) * kN;
    if (row < in.rows) next[i] = LoadPack<kN>(in.x + row * in.columns + column);
  };
  int in_block = group;
  int64_t row = int64_t{blockIdx.x} * rows + group;
#pragma unroll
  for (int i = 0; i < kNormPacks; ++i) {
    if ((lane + i * kThreads) * kN < in.columns) load_next(row, i);
  }
  int turn = 0;
  while (row - in_block < in.rows) {
    const bool last = in_block + kAtOnce >= rows;
    const int64_t following = last ? row + stride - (in_block - group) : row + kAtOnce;
    Pack<T, kN> x[kNormPacks];
    float sum[1] = {0.0f};
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      if ((lane + i * kThreads) * kN >= in.columns) continue;
      x[i] = next[i];
      load_next(following, i);
      if constexpr (kCentered) {
#pragma unroll
        for (int j = 0; j < kN; ++j) sum[0] += ToFloat(x[i][j]);
      }
    }
    float mean = 0.0f;
    if constexpr (kCentered) {
      RowSums<kThreads, kBlock>(sum, turn++);
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
    RowSums<kThreads, kBlock>(sum, turn++);
    const float rstd = 1.0f / sqrtf(sum[0] / count + in.epsilon);
    const bool exists = row < in.rows;
    if (lane == 0 && exists) {
      if constexpr (kCentered) in.mean[row] = mean;
      in.rstd[row] = rstd;
    }
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns || !exists) continue;
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
      output.Store({row * in.columns + column, in_block, column}, values);
    }
    if (last) output.Flush(row - in_block, 0);
    in_block = last ? group : in_block + kAtOnce;
    row = following;
  }
  output.Finish();
}

inline constexpr int kAnyWidthThreads = 256;

/// Rows of any width at any address: a block each, read two or three times.
template <bool kCentered, typename T, typename Output>
__global__ void __launch_bounds__(kAnyWidthThreads)
    NormForwardAnyWidth(NormInput<T> in, Output output) {
  const float count = static_cast<float>(in.columns);
  const int rows = output.Rows(1);
  const int columns = output.Columns(in.columns);
  const int thread = static_cast<int>(threadIdx.x);
  output.Begin();
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * rows; first < in.rows;
       first += int64_t{gridDim.x} * rows) {
    const int64_t end = first + rows < in.rows ? first + rows : in.rows;
    for (int64_t row = first; row < end; ++row) {
      const T* x = in.x + row * in.columns;
      float mean = 0.0f;
      if constexpr (kCentered) {
        float sum[1] = {0.0f};
        for (int i = thread; i < in.columns; i += kAnyWidthThreads) sum[0] += ToFloat(x[i]);
        RowSums<kAnyWidthThreads, kAnyWidthThreads>(sum, turn++);
        mean = sum[0] / count;
      }
      float squares[1] = {0.0f};
      for (int i = thread; i < in.columns; i += kAnyWidthThreads) {
        const float difference = ToFloat(x[i]) - mean;
        squares[0] += difference * difference;
      }
      RowSums<kAnyWidthThreads, kAnyWidthThreads>(squares, turn++);
      if (thread == 0) {
        if constexpr (kCentered) in.mean[row] = mean;
        in.rstd[row] = 1.0f / sqrtf(squares[0] / count + in.epsilon);
      }
    }
    __syncthreads();
    for (int begin = 0; begin < in.columns; begin += columns) {
      const int limit = begin + columns < in.columns ? begin + columns : in.columns;
      for (int64_t row = first; row < end; ++row) {
        const T* x = in.x + row * in.columns;
        const float rstd = in.rstd[row];
        float mean = 0.0f;
        if constexpr (kCentered) mean = in.mean[row];
        for (int i = begin + thread; i < limit; i += kAnyWidthThreads) {
          float values[1] = {(ToFloat(x[i]) - mean) * rstd *
                             (ToFloat(in.weight[i]) + in.weight_offset)};
          if constexpr (kCentered) {
            if (in.bias != nullptr) values[0] += ToFloat(in.bias[i]);
          }
          output.Store({row * in.columns + i, static_cast<int>(row - first), i - begin}, values);
        }
      }
      output.Flush(first, begin);
    }
  }
  output.Finish();
}

/// Columns of a row that AnyWidth kernels make at once, if they have to part them.
inline constexpr int64_t kAnyWidthColumns = 2048;

/// `aligned`: packs may be used on every row of every matrix and on the weights.
template <bool kCentered, typename T, typename Output>
void LaunchNormForward(const LaunchContext& context, const NormInput<T>& in, Output output,
                       bool aligned) {
  const auto launch = [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    constexpr int kBlock = Output::Block(kThreads);
    constexpr int kResident = Output::Resident(kCentered, kThreads);
    output.Cut(context, kBlock / kThreads, in.rows, in.columns);
    const unsigned grid =
        GridFor(context, in.rows, output.Rows(kBlock / kThreads), kResident / kBlock);
    Launch(context, NormForwardKernel<kCentered, kThreads, T, Output>, dim3(grid), dim3(kBlock),
           output.SharedBytes(), in, output);
  };
  const int64_t packs = in.columns / kPackSize<T>;
  if (!aligned || packs > 512 * kNormPacks) {
    output.Cut(context, 1, in.rows, std::min<int64_t>(in.columns, kAnyWidthColumns));
    Launch(context, NormForwardAnyWidth<kCentered, T, Output>,
           dim3(GridFor(context, in.rows, output.Rows(1), 8)), dim3(kAnyWidthThreads),
           output.SharedBytes(), in, output);
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

// Backward kernels of LayerNorm and RMSNorm. Contract in engine/ops/norm.h.
//
// With xhat = (x - mean) * rstd and g = dy * weight, dx += rstd * (g - mean(g) - xhat *
// mean(g * xhat)), dweight = sum over rows of dy * xhat, dbias that of dy; in RMSNorm mean and
// mean(g) are 0.
#pragma once

#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/norm_forward.h"

namespace trimtab {

template <typename T>
struct NormGradients {
  const T* dy;
  const T* x;
  const T* weight;
  const float* mean;  // LayerNorm only
  const float* rstd;
  T* dx;
  int64_t rows;
  int columns;
  float weight_offset;  // added to the weight
};

/// An output of the kernels below that gets nothing: what else is made of dx.
struct NoCopies {
  __device__ __forceinline__ void Begin() {}
  template <int N>
  __device__ __forceinline__ void Store(int64_t /*index*/, const float (&/*values*/)[N]) {}
  __device__ __forceinline__ void Finish() {}
};

template <int kThreads>
inline constexpr int kNormBackwardBlock = kThreads == kWarpSize ? 256 : kThreads;

/// Threads that a multiprocessor runs at once: what bounds the registers of each.
template <bool kCentered, int kThreads>
inline constexpr int kNormBackwardResident = kCentered || kThreads == kWarpSize ? 512 : 768;

template <bool kCentered>
inline constexpr int kWeightSums = kCentered ? 2 : 1;

/// Rows of up to kThreads * kPacks packs, everything read once. Each block adds up its rows' share
/// of the weight gradients in registers: partial [kWeightSums][blocks][columns].
template <bool kCentered, int kThreads, int kPacks, typename T, typename Output>
__global__ void __launch_bounds__(kNormBackwardBlock<kThreads>,
                                  kNormBackwardResident<kCentered, kThreads> /
                                      kNormBackwardBlock<kThreads>)
    NormBackwardKernel(NormGradients<T> in, Output output, float* partial) {
  constexpr int kN = kPackSize<T>;
  constexpr int kRowsPerBlock = kNormBackwardBlock<kThreads> / kThreads;
  constexpr int kSums = kWeightSums<kCentered>;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  const int group = static_cast<int>(threadIdx.x) / kThreads;
  const float count = static_cast<float>(in.columns);
  float total[kSums][kPacks][kN] = {};
  output.Begin();
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + group; row < in.rows;
       row += int64_t{gridDim.x} * kRowsPerBlock) {
    Pack<T, kN> dy[kPacks];
    Pack<T, kN> x[kPacks];
    Pack<T, kN> dx[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns) continue;
      dy[i] = LoadPack<kN>(in.dy + row * in.columns + column);
      x[i] = LoadPack<kN>(in.x + row * in.columns + column);
      dx[i] = LoadPack<kN>(in.dx + row * in.columns + column);
    }
    const float rstd = in.rstd[row];
    float mean = 0.0f;
    if constexpr (kCentered) mean = in.mean[row];
    float sums[kSums] = {};  // of g * xhat, and of g
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns) continue;
      const Pack<T, kN> weight = LoadPack<kN>(in.weight + column);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float gradient = ToFloat(dy[i][j]);
        const float xhat = (ToFloat(x[i][j]) - mean) * rstd;
        const float g = gradient * (ToFloat(weight[j]) + in.weight_offset);
        sums[0] += g * xhat;
        total[0][i][j] += gradient * xhat;
        if constexpr (kCentered) {
          sums[1] += g;
          total[1][i][j] += gradient;
        }
      }
    }
    RowSums<kThreads>(sums, turn++);
    const float slope = sums[0] / count;
    float shift = 0.0f;
    if constexpr (kCentered) shift = sums[1] / count;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column >= in.columns) continue;
      const Pack<T, kN> weight = LoadPack<kN>(in.weight + column);
      float values[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float xhat = (ToFloat(x[i][j]) - mean) * rstd;
        const float g = ToFloat(dy[i][j]) * (ToFloat(weight[j]) + in.weight_offset);
        values[j] = ToFloat(dx[i][j]) + rstd * (g - shift - xhat * slope);
      }
      StoreFloats(in.dx + row * in.columns + column, values);
      output.Store(row * in.columns + column, values);
    }
  }
  output.Finish();

  if constexpr (kRowsPerBlock > 1) {
    // The warps add theirs up in turn; [j][lane] keeps a warp's accesses in different banks.
    __shared__ float shared[kSums][kPacks][kN][kWarpSize];
    for (int turn_of = 0; turn_of < kRowsPerBlock; ++turn_of) {
      if (group == turn_of) {
#pragma unroll
        for (int k = 0; k < kSums; ++k) {
#pragma unroll
          for (int i = 0; i < kPacks; ++i) {
#pragma unroll
            for (int j = 0; j < kN; ++j) {
              if (turn_of > 0) total[k][i][j] += shared[k][i][j][lane];
              shared[k][i][j][lane] = total[k][i][j];
            }
          }
        }
      }
      __syncthreads();
    }
    if (group != kRowsPerBlock - 1) return;
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    float* target = partial + (k * int64_t{gridDim.x} + blockIdx.x) * in.columns;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column < in.columns) StoreFloats(target + column, total[k][i]);
    }
  }
}

/// dx alone, for rows of any width at any address: a block each.
template <bool kCentered, typename T, typename Output>
__global__ void __launch_bounds__(kAnyWidthThreads)
    NormBackwardAnyWidth(NormGradients<T> in, Output output) {
  const float count = static_cast<float>(in.columns);
  output.Begin();
  int turn = 0;
  for (int64_t row = blockIdx.x; row < in.rows; row += gridDim.x) {
    const T* dy = in.dy + row * in.columns;
    const T* x = in.x + row * in.columns;
    T* dx = in.dx + row * in.columns;
    const float rstd = in.rstd[row];
    float mean = 0.0f;
    if constexpr (kCentered) mean = in.mean[row];
    float sums[2] = {0.0f, 0.0f};
    for (int i = static_cast<int>(threadIdx.x); i < in.columns; i += kAnyWidthThreads) {
      const float g = ToFloat(dy[i]) * (ToFloat(in.weight[i]) + in.weight_offset);
      sums[0] += g * ((ToFloat(x[i]) - mean) * rstd);
      sums[1] += g;
    }
    RowSums<kAnyWidthThreads>(sums, turn++);
    const float slope = sums[0] / count;
    const float shift = kCentered ? sums[1] / count : 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < in.columns; i += kAnyWidthThreads) {
      const float xhat = (ToFloat(x[i]) - mean) * rstd;
      const float g = ToFloat(dy[i]) * (ToFloat(in.weight[i]) + in.weight_offset);
      const float value[1] = {ToFloat(dx[i]) + rstd * (g - shift - xhat * slope)};
      dx[i] = FromFloat<T>(value[0]);
      output.Store(row * in.columns + i, value);
    }
  }
  output.Finish();
}

/// What the weight gradients sum, for ColumnPartials.
template <bool kCentered, typename T>
struct WeightGradientValues {
  NormGradients<T> in;

  template <int kSums, int N>
  __device__ __forceinline__ void operator()(int64_t row, int64_t column,
                                             float (&v)[kSums][N]) const {
    const int64_t index = row * in.columns + column;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gradient = ToFloat(in.dy[index + j]);
      float mean = 0.0f;
      if constexpr (kCentered) mean = in.mean[row];
      v[0][j] = gradient * ((ToFloat(in.x[index + j]) - mean) * in.rstd[row]);
      if constexpr (kCentered) v[1][j] = gradient;
    }
  }
};

/// `aligned`: packs may be used on every row of every matrix and on the weights.
template <bool kCentered, typename T, typename G, typename Output>
void LaunchNormBackward(const LaunchContext& context, const NormGradients<T>& in,
                        const ColumnTargets<G>& targets, const Output& output, bool aligned) {
  constexpr int kSums = kWeightSums<kCentered>;
  const auto launch = [&](auto threads, auto packs) {
    constexpr int kThreads = decltype(threads)::value;
    constexpr int kPacks = decltype(packs)::value;
    constexpr int kBlock = kNormBackwardBlock<kThreads>;
    // No more blocks than run at once: each costs a row of partial sums.
    const unsigned grid =
        std::max(1u, GridFor(context, in.rows, kBlock / kThreads,
                             kNormBackwardResident<kCentered, kThreads> / kBlock));
    auto* partial = context.Scratch<float>(int64_t{kSums} * grid * in.columns);
    Launch(context, NormBackwardKernel<kCentered, kThreads, kPacks, T, Output>, dim3(grid),
           dim3(kBlock), 0, in, output, partial);
    LaunchSumPartials(context, partial, grid, in.columns, kSums, targets);
  };
  const int64_t packs = in.columns / kPackSize<T>;
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Three = std::integral_constant<int, 3>;
  using Four = std::integral_constant<int, 4>;
  // With more than 16 columns to a thread their sums would not fit into registers.
  constexpr int64_t kMostPacks = kPackSize < T >> 4 ? 1024 : 2048;
  if (!aligned || packs > kMostPacks) {
    Launch(context, NormBackwardAnyWidth<kCentered, T, Output>,
           dim3(GridFor(context, in.rows, 1, 8)), dim3(kAnyWidthThreads), 0, in, output);
    LaunchColumnSums<1, kSums>(context, WeightGradientValues<kCentered, T>{in}, in.rows, in.columns,
                               targets);
  } else if (packs <= 32) {
    launch(std::integral_constant<int, 32>{}, One{});
  } else if (packs <= 64) {
    launch(std::integral_constant<int, 32>{}, Two{});
  } else if (packs <= 96) {
    launch(std::integral_constant<int, 32>{}, Three{});
  } else if (packs <= 256) {
    launch(std::integral_constant<int, 256>{}, One{});
  } else if (packs <= 512) {
    launch(std::integral_constant<int, 256>{}, Two{});
  } else if (packs <= 1024) {
    launch(std::integral_constant<int, 512>{}, Two{});
  } else if constexpr (kMostPacks > 1024) {
    launch(std::integral_constant<int, 512>{}, Four{});
  }
}

/// RMSNorm where `mean` and `dbias` are undefined. `output_for` makes the output of the kernels
/// from a null pointer of dx's type; `output_aligned`: packs may be used on what it writes.
template <bool kCentered, typename OutputFor>
void NormBackwardOver(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                      const Tensor& rstd, const Tensor& dx, const Tensor& dweight,
                      const Tensor& dbias, bool accumulate, bool weight_plus_one,
                      const OutputFor& output_for, bool output_aligned) {
  if (x.dim(1) == 0) return;
  const LaunchContext context = ContextOf(dx.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    DispatchGradient(dweight.dtype(), [&](auto* gradient) {
      using G = std::remove_pointer_t<decltype(gradient)>;
      const NormGradients<T> in = {Data<T>(dy),
                                   Data<T>(x),
                                   Data<T>(weight),
                                   Data<float>(mean),
                                   Data<float>(rstd),
                                   Data<T>(dx),
                                   x.dim(0),
                                   static_cast<int>(x.dim(1)),
                                   OffsetOf(weight_plus_one)};
      const ColumnTargets<G> targets{{Data<G>(dweight), Data<G>(dbias)}, accumulate};
      const bool aligned =
          output_aligned && RowsAligned<T>(x.dim(1), in.dy, in.x, in.weight, in.dx);
      LaunchNormBackward<kCentered>(context, in, targets, output_for(value), aligned);
    });
  });
}

}  // namespace trimtab

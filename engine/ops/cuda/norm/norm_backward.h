// Backward kernels of LayerNorm and RMSNorm. Contract in engine/ops/norm/norm.h.
//
// With xhat = (x - mean) * rstd and g = dy * weight, dx += rstd * (g - mean(g) - xhat *
// mean(g * xhat)), dweight = sum over rows of dy * xhat, dbias that of dy; in RMSNorm mean and
// mean(g) are 0.
#pragma once

#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/norm/norm_forward.h"

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

/// An output (norm_forward.h) of the kernels below that gets nothing: what else is made of dx.
struct NoCopies {
  static constexpr int Block(int threads) { return threads == kWarpSize ? 256 : threads; }
  static constexpr int Resident(bool centered, int threads) {
    return centered || threads == kWarpSize ? 512 : 768;
  }

  void Cut(const LaunchContext& /*context*/, int /*at_once*/, int64_t /*rows*/,
           int64_t /*columns*/) {}
  size_t SharedBytes() const { return 0; }

  TRIMTAB_HOST_DEVICE int Rows(int at_once) const { return at_once; }
  __device__ __forceinline__ int Columns(int columns) const { return columns; }
  __device__ __forceinline__ void Begin() {}
  template <int N>
  __device__ __forceinline__ void Store(const NormPlace& /*place*/, const float (&/*values*/)[N]) {}
  __device__ __forceinline__ void Flush(int64_t /*row*/, int /*column*/) {}
  __device__ __forceinline__ void Finish() {}
};

template <bool kCentered>
inline constexpr int kWeightSums = kCentered ? 2 : 1;

/// Rows of weight gradients that a block leaves: warps add theirs up first.
template <int kThreads, typename Output>
inline constexpr int kWeightParts = kThreads == kWarpSize ? 1 : Output::Block(kThreads) / kThreads;

/// Rows of up to kThreads * kPacks packs, everything read once. The threads of a row add up its
/// share of the weight gradients in registers: partial [kWeightSums][kWeightParts of all
/// blocks][columns].
template <bool kCentered, int kThreads, int kPacks, typename T, typename Output>
__global__ void __launch_bounds__(Output::Block(kThreads),
                                  Output::Resident(kCentered, kThreads) / Output::Block(kThreads))
    NormBackwardKernel(NormGradients<T> in, Output output, float* partial) {
  constexpr int kN = kPackSize<T>;
  constexpr int kBlock = Output::Block(kThreads);
  constexpr int kAtOnce = kBlock / kThreads;
  constexpr int kSums = kWeightSums<kCentered>;
  constexpr int kParts = kWeightParts<kThreads, Output>;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  const int group = static_cast<int>(threadIdx.x) / kThreads;
  const int rows = output.Rows(kAtOnce);
  const float count = static_cast<float>(in.columns);
  float total[kSums][kPacks][kN] = {};
  output.Begin();
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * rows; first < in.rows;
       first += int64_t{gridDim.x} * rows) {
    int in_block = group;
    do {
      const int64_t row = first + in_block;
      const bool exists = row < in.rows;
      Pack<T, kN> dy[kPacks];
      Pack<T, kN> x[kPacks];
      Pack<T, kN> dx[kPacks];
      float rstd = 0.0f;
      float mean = 0.0f;
      float sums[kSums] = {};  // of g * xhat, and of g
      if (exists) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          const int column = (lane + i * kThreads) * kN;
          if (column >= in.columns) continue;
          dy[i] = LoadPack<kN>(in.dy + row * in.columns + column);
          x[i] = LoadPack<kN>(in.x + row * in.columns + column);
          dx[i] = LoadPack<kN>(in.dx + row * in.columns + column);
        }
        rstd = in.rstd[row];
        if constexpr (kCentered) mean = in.mean[row];
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
      }
      RowSums<kThreads, kBlock>(sums, turn++);
      if (!exists) continue;
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
        output.Store({row * in.columns + column, in_block, column}, values);
      }
    } while ((in_block += kAtOnce) < rows);
    output.Flush(first, 0);
  }
  output.Finish();

  if constexpr (kParts < kAtOnce) {
    // The warps add theirs up in turn; [j][lane] keeps a warp's accesses in different banks.
    __shared__ float shared[kSums][kPacks][kN][kWarpSize];
    for (int turn_of = 0; turn_of < kAtOnce; ++turn_of) {
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
    if (group != kAtOnce - 1) return;
  }
  const int part = kParts > 1 ? group : 0;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    float* target = partial + ((k * int64_t{gridDim.x} + blockIdx.x) * kParts + part) * in.columns;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (lane + i * kThreads) * kN;
      if (column < in.columns) StoreFloats(target + column, total[k][i]);
    }
  }
}

/// dx alone, for rows of any width at any address: a block goes over each twice.
template <bool kCentered, typename T, typename Output>
__global__ void __launch_bounds__(kAnyWidthThreads)
    NormBackwardAnyWidth(NormGradients<T> in, Output output) {
  const float count = static_cast<float>(in.columns);
  const int rows = output.Rows(1);
  const int columns = output.Columns(in.columns);
  const int thread = static_cast<int>(threadIdx.x);
  __shared__ float slopes[kMostNormRows];
  __shared__ float shifts[kMostNormRows];
  output.Begin();
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * rows; first < in.rows;
       first += int64_t{gridDim.x} * rows) {
    const int64_t end = first + rows < in.rows ? first + rows : in.rows;
    for (int64_t row = first; row < end; ++row) {
      const T* dy = in.dy + row * in.columns;
      const T* x = in.x + row * in.columns;
      const float rstd = in.rstd[row];
      float mean = 0.0f;
      if constexpr (kCentered) mean = in.mean[row];
      float sums[2] = {0.0f, 0.0f};
      for (int i = thread; i < in.columns; i += kAnyWidthThreads) {
        const float g = ToFloat(dy[i]) * (ToFloat(in.weight[i]) + in.weight_offset);
        sums[0] += g * ((ToFloat(x[i]) - mean) * rstd);
        sums[1] += g;
      }
      RowSums<kAnyWidthThreads, kAnyWidthThreads>(sums, turn++);
      if (thread == 0) {
        slopes[row - first] = sums[0] / count;
        shifts[row - first] = kCentered ? sums[1] / count : 0.0f;
      }
    }
    __syncthreads();
    for (int begin = 0; begin < in.columns; begin += columns) {
      const int limit = begin + columns < in.columns ? begin + columns : in.columns;
      for (int64_t row = first; row < end; ++row) {
        const int in_block = static_cast<int>(row - first);
        const int64_t start = row * in.columns;
        const float rstd = in.rstd[row];
        float mean = 0.0f;
        if constexpr (kCentered) mean = in.mean[row];
        for (int i = begin + thread; i < limit; i += kAnyWidthThreads) {
          const float xhat = (ToFloat(in.x[start + i]) - mean) * rstd;
          const float g = ToFloat(in.dy[start + i]) * (ToFloat(in.weight[i]) + in.weight_offset);
          const float value[1] = {ToFloat(in.dx[start + i]) +
                                  rstd * (g - shifts[in_block] - xhat * slopes[in_block])};
          in.dx[start + i] = FromFloat<T>(value[0]);
          output.Store({start + i, in_block, i - begin}, value);
        }
      }
      output.Flush(first, begin);
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
                        const ColumnTargets<G>& targets, Output output, bool aligned) {
  constexpr int kSums = kWeightSums<kCentered>;
  const auto launch = [&](auto threads, auto packs) {
    constexpr int kThreads = decltype(threads)::value;
    constexpr int kPacks = decltype(packs)::value;
    constexpr int kBlock = Output::Block(kThreads);
    constexpr int kResident = Output::Resident(kCentered, kThreads);
    output.Cut(context, kBlock / kThreads, in.rows, in.columns);
    // No more blocks than run at once: each costs rows of partial sums.
    const unsigned grid =
        std::max(1u, GridFor(context, in.rows, output.Rows(kBlock / kThreads), kResident / kBlock));
    const int64_t parts = int64_t{kWeightParts<kThreads, Output>} * grid;
    auto* partial = context.Scratch<float>(kSums * parts * in.columns);
    Launch(context, NormBackwardKernel<kCentered, kThreads, kPacks, T, Output>, dim3(grid),
           dim3(kBlock), output.SharedBytes(), in, output, partial);
    LaunchSumPartials(context, partial, parts, in.columns, kSums, targets);
  };
  const int64_t packs = in.columns / kPackSize<T>;
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Three = std::integral_constant<int, 3>;
  using Four = std::integral_constant<int, 4>;
  // With more than 16 columns to a thread their sums would not fit into registers.
  constexpr int64_t kMostPacks = kPackSize < T >> 4 ? 1024 : 2048;
  if (!aligned || packs > kMostPacks) {
    output.Cut(context, 1, in.rows, std::min<int64_t>(in.columns, kAnyWidthColumns));
    Launch(context, NormBackwardAnyWidth<kCentered, T, Output>,
           dim3(GridFor(context, in.rows, output.Rows(1), 8)), dim3(kAnyWidthThreads),
           output.SharedBytes(), in, output);
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

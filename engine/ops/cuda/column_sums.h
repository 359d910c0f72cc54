// Sums over the rows of a matrix, column by column, in two stages through the device's scratch:
// parts of the rows first, then the parts in order. Equal inputs give equal bits.
#pragma once

#include <algorithm>

#include "engine/ops/cuda/kernel.h"

namespace trimtab {

inline constexpr int kColumnSumWarps = 8;

/// How the rows are divided: part i holds rows [i * rows_per_part, (i + 1) * rows_per_part).
struct ColumnParts {
  int64_t rows_per_part = 0;
  int64_t parts = 0;
};

/// Stage 1: partial [outputs][parts][columns] from `values(row, column, v)`, which gives
/// v[outputs][N] of the N columns from `column` on. `columns` is a multiple of N. Blocks: columns
/// in groups of 32 * N, then parts.
template <int N, int kOutputs, typename Values>
__global__ void __launch_bounds__(kColumnSumWarps* kWarpSize)
    ColumnPartials(Values values, int64_t rows, int64_t columns, int64_t rows_per_part,
                   float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t first = int64_t{blockIdx.x} * kWarpSize * N;
  const int64_t column = first + lane * N;
  const int64_t begin = int64_t{blockIdx.y} * rows_per_part;
  const int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
  float sum[kOutputs][N] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kColumnSumWarps) {
      float v[kOutputs][N];
      values(row, column, v);
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
        for (int j = 0; j < N; ++j) sum[k][j] += v[k][j];
      }
    }
  }
  __shared__ float total[kOutputs][kColumnSumWarps][N * kWarpSize];
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) total[k][warp][j * kWarpSize + lane] = sum[k][j];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kOutputs * N * kWarpSize;
       i += static_cast<int>(blockDim.x)) {
    const int k = i / (N * kWarpSize);
    const int slot = i % (N * kWarpSize);
    const int64_t target = first + int64_t{slot % kWarpSize} * N + slot / kWarpSize;
    if (target >= columns) continue;
    float result = 0;
    for (int w = 0; w < kColumnSumWarps; ++w) result += total[k][w][slot];
    partial[(k * int64_t{gridDim.y} + blockIdx.y) * columns + target] = result;
  }
}

/// Where the sums go: out[k] [columns] is overwritten, or added to with `accumulate`. The last may
/// be null: then nobody wants it.
template <typename G>
struct ColumnTargets {
  G* out[2] = {};
  bool accumulate = false;
};

/// Stage 2 over partial [outputs][parts][columns]. Blocks of 32 * 32 threads: columns in groups of
/// 32, then outputs.
template <typename G>
__global__ void __launch_bounds__(kWarpSize* kWarpSize)
    SumPartials(const float* partial, int64_t parts, int64_t columns, ColumnTargets<G> targets) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t first = int64_t{blockIdx.x} * kWarpSize;
  const float* source = partial + int64_t{blockIdx.y} * parts * columns;
  float sum = 0;
  if (first + lane < columns) {
#pragma unroll 8
    for (int64_t part = warp; part < parts; part += kWarpSize) {
      sum += source[part * columns + first + lane];
    }
  }
  __shared__ float sums[kWarpSize][kWarpSize + 1];
  sums[warp][lane] = sum;
  __syncthreads();
  const float result = WarpSum(sums[lane][warp]);
  if (lane != 0 || first + warp >= columns) return;
  G* out = (blockIdx.y == 0 ? targets.out[0] : targets.out[1]) + first + warp;
  *out = FromFloat<G>((targets.accumulate ? ToFloat(*out) : 0.0f) + result);
}

/// Enough parts to keep the device busy, few enough that their sums cost little.
inline ColumnParts DivideRows(const LaunchContext& context, int64_t rows, int64_t columns,
                              int64_t columns_per_block, int outputs) {
  constexpr int64_t kBlocksPerMultiprocessor = 8;
  constexpr int64_t kFewestRows = 32;
  constexpr int64_t kMostBlocks = 65535;  // of a grid's second dimension
  const int64_t blocks =
      std::max<int64_t>(1, (columns + columns_per_block - 1) / columns_per_block);
  const int64_t scratch =
      context.scratch_bytes / (std::max<int64_t>(1, columns) * outputs * int64_t{sizeof(float)});
  int64_t parts = kBlocksPerMultiprocessor * context.multiprocessors / blocks;
  parts = std::min({parts, (rows + kFewestRows - 1) / kFewestRows, scratch, kMostBlocks});
  parts = std::max<int64_t>(1, parts);
  const int64_t rows_per_part = std::max<int64_t>(1, (rows + parts - 1) / parts);
  return {rows_per_part, std::max<int64_t>(1, (rows + rows_per_part - 1) / rows_per_part)};
}

/// Stage 2 for partial sums that already stand in `partial`.
template <typename G>
void LaunchSumPartials(const LaunchContext& context, const float* partial, int64_t parts,
                       int64_t columns, int outputs, const ColumnTargets<G>& targets) {
  const auto blocks = static_cast<unsigned>((columns + kWarpSize - 1) / kWarpSize);
  if (targets.out[outputs - 1] == nullptr) --outputs;
  Launch(context, SumPartials<G>, dim3(blocks, static_cast<unsigned>(outputs)),
         dim3(kWarpSize * kWarpSize), 0, partial, parts, columns, targets);
}

/// Both stages. `values` as in ColumnPartials.
template <int N, int kOutputs, typename Values, typename G>
void LaunchColumnSums(const LaunchContext& context, const Values& values, int64_t rows,
                      int64_t columns, const ColumnTargets<G>& targets) {
  constexpr int64_t kColumnsPerBlock = int64_t{kWarpSize} * N;
  const ColumnParts division = DivideRows(context, rows, columns, kColumnsPerBlock, kOutputs);
  auto* partial = context.Scratch<float>(kOutputs * division.parts * columns);
  const dim3 grid(static_cast<unsigned>((columns + kColumnsPerBlock - 1) / kColumnsPerBlock),
                  static_cast<unsigned>(division.parts));
  Launch(context, ColumnPartials<N, kOutputs, Values>, grid, dim3(kColumnSumWarps * kWarpSize), 0,
         values, rows, columns, division.rows_per_part, partial);
  LaunchSumPartials(context, partial, division.parts, columns, kOutputs, targets);
}

}  // namespace trimtab

// One pass from what a producer computes to fp8: rows, transposed copy and largest magnitude.
#pragma once

#include "engine/ops/cuda/fp8/fp8_tile.h"
#include "engine/ops/fp8/quantize.h"

namespace trimtab {

/// Where the codes go. The matrix is [rows, kOutputs * columns], the outputs side by side.
template <typename F8>
struct CodeTarget {
  F8* rows;        // or null
  F8* transposed;  // or null
  const float* scale;
  float* amax;              // or null
  float* partial;           // with kColumnSums, or null: [rows of tiles][columns], sums of values
  int64_t stride;           // between transposed rows
  bool transposed_aligned;  // packs may be used on every transposed row
};

template <typename F8>
CodeTarget<F8> TargetOf(const Tensor& scale, const Fp8Output& out, float* partial = nullptr) {
  F8* const transposed = Data<F8>(out.transposed);
  const int64_t stride = transposed != nullptr ? out.transposed.dim(1) : 0;
  return {Data<F8>(out.rows),
          transposed,
          Data<float>(scale),
          Data<float>(out.amax),
          partial,
          stride,
          stride % 16 == 0 && IsAligned(transposed)};
}
inline DType TypeOf(const Fp8Output& out) {
  return out.rows.defined() ? out.rows.dtype() : out.transposed.dtype();
}

/// `values` * scale as codes; raises `largest` to the largest magnitude before scaling.
template <typename F8, int N>
__device__ __forceinline__ Pack<F8, N> QuantizePack(const float (&values)[N], float scale,
                                                    uint32_t& largest) {
  float scaled[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const uint32_t bits = MagnitudeBits(values[j]);
    largest = largest < bits ? bits : largest;
    scaled[j] = values[j] * scale;
  }
  return PackOf<F8>(scaled);
}

/// Adds the sums that threads of the same 8 columns of a tile bring, and stores them. All threads
/// of the block must call it.
__device__ __forceinline__ void StoreTileSums(float (&sums)[kTileVector], float* partial,
                                              int64_t first_column, int64_t columns) {
  constexpr int kWarps = kTileThreads / kWarpSize;
  __shared__ float shared[kWarps][kTileColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int j = 0; j < kTileVector; ++j) {
    // Lanes 16 apart have the same columns.
    const float sum = sums[j] + __shfl_xor_sync(kWholeWarp, sums[j], 16);
    if (lane < 16) shared[warp][j * 16 + lane] = sum;
  }
  __syncthreads();
  const int slot = static_cast<int>(threadIdx.x);
  const int64_t column = first_column + slot % 16 * kTileVector + slot / 16;
  if (slot >= kTileColumns || column >= columns) return;
  float total = 0.0f;
  for (int w = 0; w < kWarps; ++w) total += shared[w][slot];
  partial[column] = total;
}

/// A producer has
///   kOutputs, kGroups   matrices it makes, and groups of rows per tile (TransposedTile)
///   kColumnSums         whether the columns of its matrix, one, are summed too
///   struct Raw          what it reads for 8 columns of a row
///   void Load(row, column, Raw&)              with packs
///   void LoadOne(row, column, index, Raw&)    of one column, as element `index`
///   void Compute(const Raw&, float (&)[kOutputs][8])
///
/// Makes the calling thread's part of the tile whose first element is (first_row, first_column):
/// stores its codes by rows and puts them into `tiles`, raises `largest` to the largest magnitude,
/// and adds to the `sums` of its columns. kAligned: packs of 8 columns may be used on every row
/// that is read or written.
template <bool kAligned, typename Producer, typename F8, typename Tile>
__device__ __forceinline__ void ProduceTile(const Producer& producer, const CodeTarget<F8>& target,
                                            int64_t rows, int64_t columns, int64_t first_row,
                                            int64_t first_column, Tile (&tiles)[Producer::kOutputs],
                                            uint32_t& largest, float (&sums)[kTileVector]) {
  constexpr int kOutputs = Producer::kOutputs;
  constexpr int kGroups = Producer::kGroups;
  const int64_t column = first_column + static_cast<int>(threadIdx.x) % 16 * kTileVector;
  const int64_t row_of_thread = first_row + static_cast<int>(threadIdx.x) / 16 * 4;

  // Beyond the matrix its last row or columns are read again: they change no maximum, nothing
  // stores them, and the loads need no branches.
  typename Producer::Raw raw[kGroups][4];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      int64_t row = row_of_thread + group * kTileRowsPerGroup + r;
      row = row < rows ? row : rows - 1;
      if constexpr (kAligned) {
        producer.Load(row, column < columns ? column : columns - kTileVector, raw[group][r]);
      } else {
#pragma unroll
        for (int j = 0; j < kTileVector; ++j) {
          producer.LoadOne(row, column + j < columns ? column + j : columns - 1, j, raw[group][r]);
        }
      }
    }
  }

  const float scale = *target.scale;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    uint32_t words[kOutputs][4][2];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t row = row_of_thread + group * kTileRowsPerGroup + r;
      float values[kOutputs][kTileVector];
      producer.Compute(raw[group][r], values);
      if constexpr (Producer::kColumnSums) {
#pragma unroll
        for (int j = 0; j < kTileVector; ++j) sums[j] += row < rows ? values[0][j] : 0.0f;
      }
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) {
        const Pack<F8, kTileVector> codes = QuantizePack<F8>(values[k], scale, largest);
        memcpy(words[k][r], &codes, sizeof(codes));
        if (target.rows == nullptr || row >= rows) continue;
        F8* out = target.rows + (row * kOutputs + k) * columns + column;
        if constexpr (kAligned) {
          if (column < columns) StorePack(out, codes);
        } else {
#pragma unroll
          for (int j = 0; j < kTileVector; ++j) {
            if (column + j < columns) out[j] = codes[j];
          }
        }
      }
    }
    if (target.transposed != nullptr) {
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) tiles[k].Put(group, words[k]);
    }
  }
}

/// Stores the tiles that ProduceTile has made, after a barrier.
template <typename F8, typename Tile, int kOutputs>
__device__ __forceinline__ void StoreTransposed(const CodeTarget<F8>& target,
                                                const Tile (&tiles)[kOutputs], int64_t rows,
                                                int64_t columns, int64_t first_row,
                                                int64_t first_column) {
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
    auto* transposed = reinterpret_cast<uint8_t*>(target.transposed) + k * columns * target.stride;
    tiles[k].Store(transposed, first_row, first_column, rows, columns, target.stride,
                   target.transposed_aligned);
  }
}

/// Blocks that a multiprocessor runs at once: as many as leave each thread the registers for what
/// it reads.
template <typename Producer>
inline constexpr int kResidentBlocks = sizeof(typename Producer::Raw) * 4 * Producer::kGroups <= 128
                                           ? 3
                                           : 2;

/// The tiles are those from row `begin` on. kAligned is a variant of its own, for its loads then
/// stay in whole registers.
template <bool kAligned, typename Producer, typename F8>
__global__ void __launch_bounds__(kTileThreads, kAligned ? kResidentBlocks<Producer> : 1)
    ProduceFp8Kernel(Producer producer, CodeTarget<F8> target, int64_t rows, int64_t columns,
                     int64_t begin) {
  using Tile = TransposedTile<Producer::kGroups>;
  __shared__ Tile tiles[Producer::kOutputs];
  const int64_t first_row = begin + int64_t{blockIdx.y} * Tile::kRows;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns;
  uint32_t largest = 0;
  float sums[kTileVector] = {};
  ProduceTile<kAligned>(producer, target, rows, columns, first_row, first_column, tiles, largest,
                        sums);
  if (target.amax != nullptr) RaiseAmax(largest, target.amax);
  if constexpr (Producer::kColumnSums) {
    if (target.partial != nullptr) {
      StoreTileSums(sums, target.partial + blockIdx.y * columns, first_column, columns);
    }
  }
  if (target.transposed == nullptr) return;
  __syncthreads();
  StoreTransposed(target, tiles, rows, columns, first_row, first_column);
}

/// Rows [begin, end) of a matrix; begin is a multiple of a tile's rows.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Quantises `part` of a matrix of `rows` rows; the column sums are those of the part.
/// `inputs_aligned`: the producer's Load may be used on every row.
template <typename Producer, typename F8>
void LaunchProduceFp8(const LaunchContext& context, const Producer& producer, int64_t rows,
                      int64_t columns, const CodeTarget<F8>& target, bool inputs_aligned,
                      const RowRange& part) {
  constexpr int64_t kRows = TransposedTile<Producer::kGroups>::kRows;
  const bool aligned =
      inputs_aligned && columns % kTileVector == 0 && IsAligned(target.rows, kTileVector);
  const dim3 grid(static_cast<unsigned>((columns + kTileColumns - 1) / kTileColumns),
                  static_cast<unsigned>((part.end - part.begin + kRows - 1) / kRows));
  Launch(context,
         aligned ? ProduceFp8Kernel<true, Producer, F8> : ProduceFp8Kernel<false, Producer, F8>,
         grid, dim3(kTileThreads), 0, producer, target, rows, columns, part.begin);
}

/// The same of all rows.
template <typename Producer, typename F8>
void LaunchProduceFp8(const LaunchContext& context, const Producer& producer, int64_t rows,
                      int64_t columns, const CodeTarget<F8>& target, bool inputs_aligned) {
  LaunchProduceFp8(context, producer, rows, columns, target, inputs_aligned, {0, rows});
}

/// A stored matrix.
template <typename T>
struct StoredMatrix {
  static constexpr int kOutputs = 1;
  static constexpr int kGroups = sizeof(T) == 2 ? 2 : 1;
  static constexpr bool kColumnSums = false;
  using Raw = Pack<T, kTileVector>;

  const T* x;
  int64_t columns;

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    raw = LoadPack<kTileVector>(x + row * columns + column);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    raw[index] = x[row * columns + column];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[1][kTileVector]) const {
#pragma unroll
    for (int j = 0; j < kTileVector; ++j) values[0][j] = ToFloat(raw[j]);
  }
};

}  // namespace trimtab

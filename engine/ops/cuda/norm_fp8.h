// Codes of what norms make, forward and backward.
//
// A row's codes depend on the whole row, so tiles cannot be made of x alone. The norm writes rows
// of codes, and a second kernel transposes them: what it reads is a quarter of what the norm moves,
// and mostly still in the cache.
#pragma once

#include "engine/ops/cuda/fp8_producer.h"

namespace trimtab {

/// Result in fp8: an output of the kernels in norm_forward.h.
template <typename F8>
struct Fp8Rows {
  F8* rows;
  const float* scale_address;
  float* amax;  // or null

  float scale = 1.0f;
  uint32_t largest = 0;

  __device__ __forceinline__ void Begin() { scale = *scale_address; }
  template <int N>
  __device__ __forceinline__ void Store(int64_t index, const float (&values)[N]) {
    float scaled[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const uint32_t bits = MagnitudeBits(values[j]);
      largest = largest < bits ? bits : largest;
      scaled[j] = values[j] * scale;
    }
    StoreFloats(rows + index, scaled);
  }
  __device__ __forceinline__ void Finish() {
    if (amax != nullptr) RaiseAmax(largest, amax);
  }
};

/// transposed [columns, rows] = codes [rows, columns].
template <bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    TransposeCodes(const uint8_t* codes, uint8_t* transposed, int64_t rows, int64_t columns,
                   bool transposed_aligned) {
  using Tile = TransposedTile<2>;
  __shared__ Tile tile;
  const int64_t first_row = int64_t{blockIdx.y} * Tile::kRows;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns;
  const int64_t column = first_column + static_cast<int>(threadIdx.x) % 16 * kTileVector;
  const int64_t row_of_thread = first_row + static_cast<int>(threadIdx.x) / 16 * 4;
  uint32_t words[2][4][2];
#pragma unroll
  for (int group = 0; group < 2; ++group) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      // What lies beyond the matrix is not stored.
      int64_t row = row_of_thread + group * kTileRowsPerGroup + r;
      row = row < rows ? row : rows - 1;
      const uint8_t* source = codes + row * columns;
      Pack<uint8_t, kTileVector> pack;
      if constexpr (kAligned) {
        pack = LoadPack<kTileVector>(source + (column < columns ? column : columns - kTileVector));
      } else {
#pragma unroll
        for (int j = 0; j < kTileVector; ++j) {
          pack[j] = source[column + j < columns ? column + j : columns - 1];
        }
      }
      memcpy(words[group][r], &pack, sizeof(pack));
    }
  }
#pragma unroll
  for (int group = 0; group < 2; ++group) tile.Put(group, words[group]);
  __syncthreads();
  tile.Store(transposed, first_row, first_column, rows, columns, /*stride=*/rows,
             transposed_aligned);
}

/// Fills out.transposed from out.rows.
inline void TransposeRows(const LaunchContext& context, const Fp8Output& out) {
  const int64_t rows = out.rows.dim(0);
  const int64_t columns = out.rows.dim(1);
  const auto* codes = static_cast<const uint8_t*>(out.rows.raw());
  const bool aligned = columns % kTileVector == 0 && IsAligned(codes, kTileVector);
  constexpr int64_t kRows = TransposedTile<2>::kRows;
  const dim3 grid(static_cast<unsigned>((columns + kTileColumns - 1) / kTileColumns),
                  static_cast<unsigned>((rows + kRows - 1) / kRows));
  Launch(context, aligned ? TransposeCodes<true> : TransposeCodes<false>, grid, dim3(kTileThreads),
         0, codes, Data<uint8_t>(out.transposed), rows, columns,
         rows % 16 == 0 && IsAligned(out.transposed.raw()));
}

}  // namespace trimtab

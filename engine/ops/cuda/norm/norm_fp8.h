// Codes of what norms make, forward and backward, in both orders.
//
// A row's codes depend on the whole row, so a block makes whole rows, up to 32 of them: it stores
// their codes, and keeps them in shared memory besides. From there it stores the columns: those of
// 32 rows are whole sectors.
#pragma once

#include "engine/base/units.h"
#include "engine/ops/cuda/fp8/fp8_producer.h"
#include "engine/ops/cuda/norm/norm_forward.h"

namespace trimtab {

/// Result in fp8: an output of the kernels in norm_forward.h and norm_backward.h. One block has all
/// registers of a multiprocessor, and most of the shared memory.
template <typename F8>
struct Fp8Rows {
  static constexpr int Block(int /*threads*/) { return 512; }
  static constexpr int Resident(bool /*centered*/, int /*threads*/) { return 512; }

  static constexpr int kSectorRows = 32;
  static constexpr int kFewestRows = 4;  // of a thread, in Flush

  F8* rows;
  uint8_t* transposed;  // [columns, all_rows], or null
  const float* scale_address;
  float* amax;  // or null
  int64_t all_rows;
  int columns;
  bool transposed_aligned;  // 4 codes of its columns may be stored at once

  // Of Cut: the codes that are kept, row by row.
  int kept_rows = 0;
  int kept_columns = 0;
  int pitch = 0;

  float scale = 1.0f;
  uint32_t largest = 0;

  /// Keeps as many rows of `width` columns as there is room for, and no more than leave every
  /// multiprocessor some of `all_rows`.
  void Cut(const LaunchContext& context, int at_once, int64_t count, int64_t width) {
    if (transposed == nullptr) return;
    constexpr int64_t kElsewhere = 2 << 10;  // of shared memory, by partial sums
    constexpr int64_t kBanks = 128;          // bytes
    kept_columns = static_cast<int>(width);
    pitch = static_cast<int>(RoundUp(width, kBanks));
    const auto too_many = [&](int64_t n) {
      return n * pitch > context.shared_bytes - kElsewhere ||
             (count + n - 1) / n * 2 <= context.multiprocessors;
    };
    kept_rows = kSectorRows;
    while (kept_rows > kFewestRows && kept_rows > at_once && too_many(kept_rows)) kept_rows /= 2;
  }
  size_t SharedBytes() const { return static_cast<size_t>(kept_rows) * static_cast<size_t>(pitch); }

  TRIMTAB_HOST_DEVICE int Rows(int at_once) const { return kept_rows > 0 ? kept_rows : at_once; }
  __device__ __forceinline__ int Columns(int all) const {
    return kept_rows > 0 ? kept_columns : all;
  }

  __device__ __forceinline__ void Begin() { scale = *scale_address; }

  template <int N>
  __device__ __forceinline__ void Store(const NormPlace& place, const float (&values)[N]) {
    const Pack<F8, N> codes = QuantizePack<F8>(values, scale, largest);
    StorePack(rows + place.index, codes);
    if (kept_rows > 0) StorePack(reinterpret_cast<F8*>(Kept(place.row, place.column)), codes);
  }

  /// Stores the columns of what is kept, from `first_row` and `first_column` of the matrix on.
  __device__ __forceinline__ void Flush(int64_t first_row, int first_column) {
    if (kept_rows == 0) return;
    __syncthreads();
    // A thread has 4 rows of 4 columns, a sector of each column as many threads as it takes.
    const int left = columns - first_column;
    const int words = ((left < kept_columns ? left : kept_columns) + 3) / 4;
    const int fours = kept_rows / 4;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < words * fours;
         i += static_cast<int>(blockDim.x)) {
      const int row = i % fours * 4;
      const int column = i / fours * 4;
      uint32_t of_rows[4];
      uint32_t of_columns[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        of_rows[r] = *reinterpret_cast<const uint32_t*>(Kept(row + r, column));
      }
      TransposeBytes(of_rows, of_columns);
      StoreFours(of_columns, first_row + row, first_column + column);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void Finish() {
    if (amax != nullptr) RaiseAmax(largest, amax);
  }

 private:
  // Where the code of a kept row and column is. What the threads of a warp read in Flush, 8 times 4
  // rows of 16 columns, is in as many banks.
  __device__ __forceinline__ uint8_t* Kept(int row, int column) const {
    return SharedMemory<uint8_t>() + row * pitch + (column ^ (row / 4 % 8 * 16));
  }

  // Stores 4 codes of each of 4 columns, from `row` and `column` on.
  __device__ __forceinline__ void StoreFours(const uint32_t (&codes)[4], int64_t row,
                                             int column) const {
    uint8_t* target = transposed + column * all_rows + row;
#pragma unroll
    for (int j = 0; j < 4; ++j, target += all_rows) {
      if (row >= all_rows || column + j >= columns) return;
      if (transposed_aligned) {
        EmulationCheckAligned(target, sizeof(uint32_t));
        *reinterpret_cast<uint32_t*>(target) = codes[j];
        continue;
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (row + r < all_rows) target[r] = static_cast<uint8_t>(codes[j] >> (8 * r));
      }
    }
  }
};

/// What `out` asks for of a matrix whose rows are out.rows.
template <typename F8>
Fp8Rows<F8> Fp8RowsOf(const Tensor& scale, const Fp8Output& out) {
  const int64_t rows = out.rows.dim(0);
  auto* const transposed = Data<uint8_t>(out.transposed);
  return {.rows = Data<F8>(out.rows),
          .transposed = transposed,
          .scale_address = Data<float>(scale),
          .amax = Data<float>(out.amax),
          .all_rows = rows,
          .columns = static_cast<int>(out.rows.dim(1)),
          .transposed_aligned = rows % 4 == 0 && IsAligned(transposed, 4)};
}

}  // namespace trimtab

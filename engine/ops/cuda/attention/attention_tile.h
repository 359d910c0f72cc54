// Tiles of attention in shared memory, and products of them on the tensor cores.
//
// A tile is rows of kHead 16-bit elements. The 16-byte chunk c of row r lies where chunk c ^ (r %
// 8) would, so that eight rows' chunks of one column never meet in a bank.
#pragma once

#include "engine/ops/cuda/attention/attention_geometry.h"
#include "engine/ops/cuda/mma.h"

namespace trimtab {

inline constexpr float kLog2E = 1.44269504088896341f;

/// Index in a tile of the first element of a chunk.
template <int kHead>
__device__ __forceinline__ int ChunkAt(int row, int chunk) {
  return row * kHead + ((chunk ^ (row & 7)) << 3);
}

/// Begins to copy rows first .. first + kRows of a head, `stride` elements apart, into a tile; rows
/// from `end` on become zeros.
template <int kRows, int kHead, int kThreads, typename T>
__device__ __forceinline__ void CopyTile(T* tile, const T* head, int64_t stride, int first,
                                         int end) {
  constexpr int kChunks = kHead / 8;
  constexpr int kStep = kThreads / kChunks;  // rows at a time
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  // A thread's chunks stand in one column, so all of them follow from the first.
  int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  T* target = tile + ChunkAt<kHead>(row, chunk);
  row += first;
  const T* source = head + row * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i) {
    const bool valid = row < end;
    CopyAsync<16>(target, valid ? source : head, valid);
    target += kStep * kHead;
    source += kStep * stride;
    row += kStep;
  }
}

/// Rows row .. row + 15, elements k .. k + 15 of the tile as an A operand.
template <int kHead, typename T>
__device__ __forceinline__ void LoadA(const T* tile, int row, int k, FragmentA& a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  LoadMatrices<false>(tile + ChunkAt<kHead>(row + (lane & 15), k / 8 + (lane >> 4)), a);
}

/// Two B operands of a product with the tile transposed: columns n .. n + 15 of the result are rows
/// of the tile, summed over elements k .. k + 15. b[0], b[1] are for the first eight columns.
template <int kHead, typename T>
__device__ __forceinline__ void LoadTransposedB(const T* tile, int n, int k, uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = n + (lane & 7) + (lane >> 4) * 8;
  LoadMatrices<false>(tile + ChunkAt<kHead>(row, k / 8 + (lane >> 3 & 1)), b);
}

/// Two B operands of a product with the tile itself: columns n .. n + 15, summed over rows
/// k .. k + 15.
template <int kHead, typename T>
__device__ __forceinline__ void LoadB(const T* tile, int k, int n, uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  LoadMatrices<true>(tile + ChunkAt<kHead>(k + (lane & 15), n / 8 + (lane >> 4)), b);
}

/// c[r] += (rows row + 16 r .. of `left`) (all kRows rows of `right`) transposed, over the head.
template <int kRowTiles, int kRows, int kHead, typename T>
__device__ __forceinline__ void MultiplyTransposed(const T* left, int row, const T* right,
                                                   FragmentC (&c)[kRowTiles][kRows / 8]) {
#pragma unroll
  for (int k = 0; k < kHead; k += 16) {
    FragmentA a[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) LoadA<kHead>(left, row + r * 16, k, a[r]);
#pragma unroll
    for (int n = 0; n < kRows; n += 16) {
      uint32_t b[4];
      LoadTransposedB<kHead>(right, n, k, b);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        MultiplyAdd<T>(c[r][n / 8], a[r], b[0], b[1]);
        MultiplyAdd<T>(c[r][n / 8 + 1], a[r], b[2], b[3]);
      }
    }
  }
}

/// c[r] += left[r] right: `left` holds fp32 results of a product, rounded to T here, `right` all
/// kRows rows of a tile.
template <int kRowTiles, int kRows, int kHead, typename T>
__device__ __forceinline__ void MultiplyFromRegisters(const FragmentC (&left)[kRowTiles][kRows / 8],
                                                      const T* right,
                                                      FragmentC (&c)[kRowTiles][kHead / 8]) {
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
    // The result layout of two neighbouring 16 x 8 products is the operand layout of one 16 x 16.
    FragmentA a[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const FragmentC& first = left[r][k / 8];
      const FragmentC& second = left[r][k / 8 + 1];
      a[r][0] = PackPair<T>(first[0], first[1]);
      a[r][1] = PackPair<T>(first[2], first[3]);
      a[r][2] = PackPair<T>(second[0], second[1]);
      a[r][3] = PackPair<T>(second[2], second[3]);
    }
#pragma unroll
    for (int n = 0; n < kHead; n += 16) {
      uint32_t b[4];
      LoadB<kHead>(right, k, n, b);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        MultiplyAdd<T>(c[r][n / 8], a[r], b[0], b[1]);
        MultiplyAdd<T>(c[r][n / 8 + 1], a[r], b[2], b[3]);
      }
    }
  }
}

/// Calls fn(T* type) with the 16-bit type that `dtype` is.
template <typename Fn>
void Dispatch16Bit(DType dtype, Fn fn) {
  if (dtype == DType::kBf16) {
    fn(static_cast<Bf16*>(nullptr));
  } else {
    fn(static_cast<F16*>(nullptr));
  }
}

inline void CheckMmaTakes(const AttentionShape& shape, DType dtype) {
  TRIMTAB_ASSERT(MmaAttentionTakes(shape, dtype),
                 "attention: no tensor-core kernel for head size {} in {}", shape.head_size,
                 Name(dtype));
}

/// x = x * keep + c * weight over this lane's elements of row `i` (0 or 1) of a row tile's result;
/// `x` is the row's first element, or nullptr for none.
template <int kHead, typename T>
__device__ __forceinline__ void MergeRow(const FragmentC (&c)[kHead / 8], int i, float keep,
                                         float weight, T* x) {
  if (x == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
    T* pair = x + n * 8 + lane % 4 * 2;
    float values[2];
    LoadFloats(pair, values);
#pragma unroll
    for (int j = 0; j < 2; ++j) values[j] = values[j] * keep + c[n][2 * i + j] * weight;
    StoreFloats(pair, values);
  }
}

/// Adds a warp's rows, 16 kRowTiles of them, to `head` from row `first`, up to row `end`.
template <int kRowTiles, int kHead, typename T>
__device__ __forceinline__ void AddRows(const FragmentC (&c)[kRowTiles][kHead / 8], T* head,
                                        int64_t stride, int first, int end) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first + r * 16 + lane / 4 + i * 8;
      MergeRow<kHead>(c[r], i, 1.0f, 1.0f, row < end ? head + row * stride : nullptr);
    }
  }
}

/// Writes a warp's rows, 16 kRowTiles of them, to `head` from row `first`, up to row `end`,
/// `stride` elements apart: through rows row .. of a tile that no other warp uses, for whole
/// chunks.
template <int kRowTiles, int kHead, typename T>
__device__ __forceinline__ void StoreRows(const FragmentC (&c)[kRowTiles][kHead / 8], T* tile,
                                          int row, T* head, int64_t stride, int first, int end) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int g = lane / 4;
  const int t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = row + r * 16 + g + i * 8;
        const uint32_t pair = PackPair<T>(c[r][n][2 * i], c[r][n][2 * i + 1]);
        reinterpret_cast<uint32_t*>(tile + ChunkAt<kHead>(at, n))[t] = pair;
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kHead / 8;
#pragma unroll
  for (int i = 0; i < kRowTiles * 16 * kChunks / kWarpSize; ++i) {
    const int index = i * kWarpSize + lane;
    const int r = index / kChunks;
    const int chunk = index % kChunks;
    if (first + r < end) {
      StorePack(head + (first + r) * stride + chunk * 8,
                LoadPack<8>(tile + ChunkAt<kHead>(row + r, chunk)));
    }
  }
}

}  // namespace trimtab

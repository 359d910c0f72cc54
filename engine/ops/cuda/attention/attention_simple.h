// Attention without tensor cores: tiles of fp32 values in shared memory, one entry of a product per
// thread at a time. Every gradient has one owner, as in the tensor-core kernels.
#pragma once

#include "engine/ops/cuda/attention/attention_geometry.h"

namespace trimtab::simple_attention {

inline constexpr int kThreads = 256;
/// Shared memory that every GPU since sm_80 grants a block.
inline constexpr int64_t kSharedLimit = 96 << 10;

/// A tile: kRows rows of a head, `width` long, and a word more so that columns spread over the
/// banks.
TRIMTAB_HOST_DEVICE int TileStride(int width) { return width + 1; }

template <int kRows, typename T>
__device__ void LoadTile(float* tile, int width, const T* head, int64_t stride, int first,
                         const BlockGeometry& s) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * width; i += kThreads) {
    const int row = i / width;
    const int d = i % width;
    const bool valid = first + row < s.size;
    tile[row * TileStride(width) + d] = valid ? ToFloat(head[(first + row) * stride + d]) : 0.0f;
  }
}

/// The rows of `head` = those of the tile times `scale`; or, with kAdd, plus those.
template <int kRows, bool kAdd, typename T>
__device__ void StoreTile(const float* tile, int width, T* head, int64_t stride, int first,
                          const BlockGeometry& s, float scale) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * width; i += kThreads) {
    const int row = i / width;
    const int d = i % width;
    if (first + row >= s.size) continue;
    T& element = head[(first + row) * stride + d];
    const float value = tile[row * TileStride(width) + d] * scale;
    element = FromFloat<T>(kAdd ? ToFloat(element) + value : value);
  }
}

template <int kRows>
__device__ void ZeroTile(float* tile, int width) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * TileStride(width); i += kThreads)
    tile[i] = 0.0f;
}

/// entry(i, j, row i of a . row j of b) for all pairs of rows.
template <int kRows, typename Entry>
__device__ void DotRows(const float* a, const float* b, int width, Entry entry) {
  for (int index = static_cast<int>(threadIdx.x); index < kRows * kRows; index += kThreads) {
    const int i = index / kRows;
    const int j = index % kRows;
    float sum = 0.0f;
    for (int d = 0; d < width; ++d)
      sum += a[i * TileStride(width) + d] * b[j * TileStride(width) + d];
    entry(i, j, sum);
  }
}

/// c = c * keep[row] + w b, w [kRows, kRows] with its rows kRows + 1 apart; transposed: w^T b.
template <int kRows, bool kTransposed>
__device__ void AddProduct(float* c, const float* keep, const float* w, const float* b, int width) {
  for (int index = static_cast<int>(threadIdx.x); index < kRows * width; index += kThreads) {
    const int i = index / width;
    const int d = index % width;
    float& result = c[i * TileStride(width) + d];
    float sum = keep == nullptr ? result : result * keep[i];
    for (int j = 0; j < kRows; ++j) {
      const float weight = kTransposed ? w[j * (kRows + 1) + i] : w[i * (kRows + 1) + j];
      sum += weight * b[j * TileStride(width) + d];
    }
    result = sum;
  }
}

inline void CheckHeadSize(const AttentionShape& shape) {
  TRIMTAB_ASSERT(LargestHead(shape) <= kMaxSimpleHeadSize,
                 "attention: head size {}, the CUDA kernels take at most {}", LargestHead(shape),
                 kMaxSimpleHeadSize);
}

}  // namespace trimtab::simple_attention

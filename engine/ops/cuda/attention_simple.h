// Attention without tensor cores: tiles of fp32 values in shared memory, one entry of a product per
// thread at a time. Every gradient has one owner, as in the tensor-core kernels.
#pragma once

#include "engine/ops/cuda/attention_geometry.h"

namespace trimtab::simple_attention {

inline constexpr int kThreads = 256;
/// Shared memory that every GPU since sm_80 grants a block.
inline constexpr int64_t kSharedLimit = 96 << 10;

/// A tile: kRows rows of a head, a word longer than the head so that columns spread over the banks.
TRIMTAB_HOST_DEVICE int TileStride(int head_size) { return head_size + 1; }

template <int kRows, typename T>
__device__ void LoadTile(float* tile, const T* head, int64_t stride, int first,
                         const BlockGeometry& s) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * s.head_size; i += kThreads) {
    const int row = i / s.head_size;
    const int d = i % s.head_size;
    const bool valid = first + row < s.size;
    tile[row * TileStride(s.head_size) + d] =
        valid ? ToFloat(head[(first + row) * stride + d]) : 0.0f;
  }
}

/// The rows of `head` = those of the tile times `scale`; or, with kAdd, plus those.
template <int kRows, bool kAdd, typename T>
__device__ void StoreTile(const float* tile, T* head, int64_t stride, int first,
                          const BlockGeometry& s, float scale) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * s.head_size; i += kThreads) {
    const int row = i / s.head_size;
    const int d = i % s.head_size;
    if (first + row >= s.size) continue;
    T& element = head[(first + row) * stride + d];
    const float value = tile[row * TileStride(s.head_size) + d] * scale;
    element = FromFloat<T>(kAdd ? ToFloat(element) + value : value);
  }
}

template <int kRows>
__device__ void ZeroTile(float* tile, int head_size) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * TileStride(head_size); i += kThreads)
    tile[i] = 0.0f;
}

/// entry(i, j, row i of a . row j of b) for all pairs of rows.
template <int kRows, typename Entry>
__device__ void DotRows(const float* a, const float* b, int head_size, Entry entry) {
  for (int index = static_cast<int>(threadIdx.x); index < kRows * kRows; index += kThreads) {
    const int i = index / kRows;
    const int j = index % kRows;
    float sum = 0.0f;
    for (int d = 0; d < head_size; ++d)
      sum += a[i * TileStride(head_size) + d] * b[j * TileStride(head_size) + d];
    entry(i, j, sum);
  }
}

/// c = c * keep[row] + w b, w [kRows, kRows] with its rows kRows + 1 apart; transposed: w^T b.
template <int kRows, bool kTransposed>
__device__ void AddProduct(float* c, const float* keep, const float* w, const float* b,
                           int head_size) {
  for (int index = static_cast<int>(threadIdx.x); index < kRows * head_size; index += kThreads) {
    const int i = index / head_size;
    const int d = index % head_size;
    float& result = c[i * TileStride(head_size) + d];
    float sum = keep == nullptr ? result : result * keep[i];
    for (int j = 0; j < kRows; ++j) {
      const float weight = kTransposed ? w[j * (kRows + 1) + i] : w[i * (kRows + 1) + j];
      sum += weight * b[j * TileStride(head_size) + d];
    }
    result = sum;
  }
}

inline void CheckHeadSize(const AttentionShape& shape) {
  TRIMTAB_ASSERT(shape.head_size <= kMaxSimpleHeadSize,
                 "attention: head size {}, the CUDA kernels take at most {}", shape.head_size,
                 kMaxSimpleHeadSize);
}

}  // namespace trimtab::simple_attention

// Where the heads of an attention call lie in memory, as kernels want it.
#pragma once

#include <cmath>

#include "engine/ops/cuda/attention_kernels.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {

/// Sizes of a call. Offsets are in elements from the first of qkv or dqkv, of out or dout, or of an
/// array [B, H, T].
struct AttentionGeometry {
  int sequence;
  int heads;
  int kv_heads;
  int group;  // query heads per key/value head
  int head_size;
  int64_t qkv_stride;  // between tokens of qkv
  int64_t out_stride;  // and of out
  float scale;         // 1 / sqrt(D)

  explicit AttentionGeometry(const AttentionShape& s)
      : sequence(static_cast<int>(s.sequence)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        group(static_cast<int>(s.heads / s.kv_heads)),
        head_size(static_cast<int>(s.head_size)),
        qkv_stride(s.qkv_size()),
        out_stride(s.heads * s.head_size),
        scale(1.0f / std::sqrt(static_cast<float>(s.head_size))) {}

  TRIMTAB_HOST_DEVICE int64_t Query(int batch, int head) const {
    return int64_t{batch} * sequence * qkv_stride + int64_t{head} * head_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Key(int batch, int kv_head) const {
    return Query(batch, heads + kv_head);
  }
  TRIMTAB_HOST_DEVICE int64_t Value(int batch, int kv_head) const {
    return Query(batch, heads + kv_heads + kv_head);
  }
  TRIMTAB_HOST_DEVICE int64_t Out(int batch, int head) const {
    return int64_t{batch} * sequence * out_stride + int64_t{head} * head_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Row(int batch, int head) const {
    return (int64_t{batch} * heads + head) * sequence;
  }
};

/// What the kernels of the backward pass read and write.
template <typename T>
struct AttentionBackwardPointers {
  const T* qkv;
  const T* dout;
  const float* log_sum_exp;
  const float* row_sums;
  T* dqkv;

  explicit AttentionBackwardPointers(const AttentionBackwardCall& call)
      : qkv(static_cast<const T*>(call.qkv)),
        dout(static_cast<const T*>(call.dout)),
        log_sum_exp(call.log_sum_exp),
        row_sums(call.row_sums()),
        dqkv(static_cast<T*>(call.dqkv)) {}
};

/// One block of threads per `rows` positions, head and sequence.
inline dim3 AttentionGrid(const AttentionShape& s, int64_t rows, int64_t heads) {
  return dim3(static_cast<unsigned>((s.sequence + rows - 1) / rows), static_cast<unsigned>(heads),
              static_cast<unsigned>(s.batch));
}

}  // namespace trimtab

// What the dispatchers of attention.h and attention_block.h share.
#pragma once

#include "engine/ops/attention/attention.h"
#include "engine/ops/dispatch.h"

namespace trimtab {

inline Shape QkvShape(const AttentionShape& s) { return {s.tokens(), s.qkv_size()}; }
inline Shape QueryShape(const AttentionShape& s) { return {s.tokens(), s.query_size()}; }
inline Shape OutShape(const AttentionShape& s) { return {s.tokens(), s.out_size()}; }
inline Shape LogSumExpShape(const AttentionShape& s) {
  return {s.rows.batch, s.heads, s.rows.sequence};
}

/// Columns of the two products of the forward pass, and of the five of the backward pass.
inline int64_t ForwardColumns(const AttentionShape& s) { return s.head_size + s.value_size(); }
inline int64_t BackwardColumns(const AttentionShape& s) {
  return 3 * s.head_size + 2 * s.value_size();
}

inline void CheckAttention(OpKind op, const AttentionShape& s) {
  TRIMTAB_ASSERT(s.rows.batch >= 1 && s.rows.sequence >= 1 && s.head_size >= 1 && s.kv_heads >= 1,
                 "{}: batch {}, sequence {}, head size {}, kv heads {}, expected at least 1 each",
                 Name(op), s.rows.batch, s.rows.sequence, s.head_size, s.kv_heads);
  TRIMTAB_ASSERT(s.heads >= s.kv_heads && s.heads % s.kv_heads == 0,
                 "{}: {} query heads are not a multiple of {} key/value heads", Name(op), s.heads,
                 s.kv_heads);
  const Tensor& positions = s.rows.positions;
  TRIMTAB_ASSERT(
      !positions.defined() || (positions.dtype() == DType::kI32 && positions.numel() == s.tokens()),
      "{}: positions of {} rows, expected int32 of {}", Name(op), positions.numel(), s.tokens());
}

/// `most_dims`: how many of a head may turn.
inline void CheckRotary(OpKind op, const AttentionShape& s, const Rotary& rotary,
                        int64_t most_dims) {
  CheckAttention(op, s);
  const int64_t dims = rotary.dims > 0 ? rotary.dims : s.head_size;
  TRIMTAB_ASSERT(dims % 2 == 0 && dims <= s.head_size && dims <= most_dims,
                 "{}: {} dims of a head of {}, expected an even number of at most {}", Name(op),
                 dims, s.head_size, most_dims);
}

/// An op's scratch; undefined if no bytes are needed.
inline Tensor AttentionScratch(Device& device, int64_t bytes) {
  if (bytes == 0) return {};
  return Tensor::Empty(device, {bytes / SizeOf(DType::kF32)}, DType::kF32, MemoryTag::kWorkspace);
}

}  // namespace trimtab

// Attention over a paged cache (Kwon et al., PagedAttention, arXiv:2309.06180): the keys and values
// of each sequence lie in blocks of equally many tokens, anywhere in memory; a table says where.
#pragma once

#include <cstdint>

#include "engine/ops/attention/attention.h"

namespace trimtab {

/// The cache of one layer on this rank. Entries are fp32, bf16 or fp16; or e4m3 or int8, each times
/// the scale of its token and head. Where shape.values_in_keys there are no values.
struct PagedCache {
  Tensor keys;    // [blocks, KV, D, block size]
  Tensor values;  // [blocks, KV, block size, D]
  Tensor scales;  // [2, blocks, KV, block size] fp32: of keys, of values; undefined without

  int64_t blocks() const { return keys.dim(0); }
  int64_t block_size() const { return keys.dim(3); }
  DType dtype() const { return keys.dtype(); }
};

/// Whether entries of the type have scales.
constexpr bool HasScales(DType entries) {
  return entries == DType::kF8E4M3 || entries == DType::kI8;
}

/// Bytes that a cache holds per token and layer.
int64_t PagedCacheBytesPerToken(int64_t kv_heads, int64_t head_size, DType entries);
/// The same where values are in the keys.
int64_t KeyCacheBytesPerToken(int64_t kv_heads, int64_t head_size, DType entries);

/// Memory for `blocks` blocks of `block_size` tokens, zeroed: a kernel may multiply by what is not
/// yet written, with a weight of 0.
PagedCache NewPagedCache(Device& device, int64_t blocks, int64_t block_size, int64_t kv_heads,
                         int64_t head_size, DType entries);

/// The same where values are in the keys.
PagedCache NewKeyCache(Device& device, int64_t blocks, int64_t block_size, int64_t kv_heads,
                       int64_t head_size, DType entries);

/// shape.rows says where the rows of the pass belong: RowLayout::Paged.
OpRecord StoreKvRecord(const AttentionShape& shape, DType dtype, DType entries);
OpRecord PagedAttentionRecord(const AttentionShape& shape, DType dtype, DType entries);

/// Bytes of scratch of PagedAttention under MemoryTag::kWorkspace. None on cuda.
int64_t PagedAttentionWorkspaceBytes(const AttentionShape& shape, const PagedCache& cache,
                                     const Executor& executor);

/// Puts keys and values of qkv [N, H*D + KV*(D + Dv)] where their positions belong. A scale is the
/// largest magnitude of its token and head over the largest value of the type.
void StoreKv(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache);

/// out [N, H*Dv]: every row's queries over the keys and values of its sequence up to its own, which
/// are in the cache. `sinks` [H] of out's type, or undefined, take part in the softmax
/// (attention_sink.h). On the cpu what a row gets does not depend on the others.
void PagedAttention(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache,
                    const Tensor& sinks, Tensor& out);

}  // namespace trimtab

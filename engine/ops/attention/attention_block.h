// Attention of some queries of a sequence over some of its keys. The attention over all keys is the
// sum of those over parts of them, each weighted by its log-sum-exp (Liu et al., Ring Attention,
// arXiv:2310.01889): so a rank can work on the keys that it has while others are on their way.
#pragma once

#include <cstdint>

#include "engine/ops/attention/attention.h"

namespace trimtab {

/// As many queries as keys, a run of each, in every sequence of a call. Rows are counted from the
/// first of the sequence in the tensor concerned. Query i is at offset(query) + i in its sequence,
/// so it sees keys 0 to i + ahead of the block, as far as there are so many, `ahead` being the
/// offset of the first query less that of the first key (AheadOf). What windows and documents hide
/// and what ALiBi takes go by it too.
struct AttentionBlock {
  int64_t query = 0;  // first query
  int64_t key = 0;    // first key
  int64_t size = 0;   // of each
};

/// Returns by how many tokens the first query of `block`, which is of `queries`, comes after its
/// first key, which is of `keys`. Not negative.
int64_t AheadOf(const RowLayout& queries, const RowLayout& keys, const AttentionBlock& block);

/// Shape of keys and values by themselves: [N, KV*(D + Dv)], per token all key heads, then value
/// heads.
Shape KeyValueShape(const AttentionShape& shape);

/// FLOPs count the scores that causality leaves, also those that a window hides, but not the share
/// that documents hide: forward 2 products, backward 5, each 2*D or 2*Dv per score. Priced as
/// attention of sequences of block.size.
OpRecord AttentionBlockForwardRecord(const AttentionShape& shape, const RowLayout& keys,
                                     const AttentionBlock& block, DType dtype = DType::kF32);
OpRecord AttentionBlockBackwardRecord(const AttentionShape& shape, const RowLayout& keys,
                                      const AttentionBlock& block, DType dtype = DType::kF32);

/// Bytes of scratch the op takes under MemoryTag::kWorkspace while it runs. On cuda: none forward;
/// backward row sums of dout * out [B, H, T].
int64_t AttentionBlockForwardWorkspaceBytes(const AttentionShape& shape,
                                            const AttentionBlock& block, const Executor& executor);
int64_t AttentionBlockBackwardWorkspaceBytes(const AttentionShape& shape,
                                             const AttentionBlock& block, const Executor& executor);

/// Adds the keys of `block` to the attention of its queries: to
/// out [N, H*Dv] and log_sum_exp [B, H, T], both fp32, which begin as 0 and -infinity. Queries are
/// those of qkv, keys and values those of kv (KeyValueShape), whose rows are laid out by `keys`, as
/// many as those of the shape.
void AttentionBlockForward(const AttentionShape& shape, const RowLayout& keys,
                           const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                           Tensor& out, Tensor& log_sum_exp);

/// Adds the block's part to dquery [N, H*D] (fp32) and dkv (as kv), from what the attention over
/// all keys gave: out [N, H*Dv] of the type of qkv, log_sum_exp; and from dout [N, H*Dv].
void AttentionBlockBackward(const AttentionShape& shape, const RowLayout& keys,
                            const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                            const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                            Tensor& dquery, Tensor& dkv);

}  // namespace trimtab

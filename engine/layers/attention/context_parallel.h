// Context parallelism: attention over sequences that are cut over the ranks of the cp group.
//
// Each rank has the queries, keys and values of its own rows (RowLayout::ZigZag), and sees the
// keys and values of the others either as they pass around a ring, from rank to rank, beside the
// products over the ones before (p2p; Liu et al., Ring Attention, arXiv:2310.01889), or all at
// once (all_gather; Llama 3, arXiv:2407.21783, section 3.3.2). What it does with them is the same:
// blocks of queries and keys, of which those that causality masks are left out. Every rank works on
// as many scores at every step, whatever its number.
#pragma once

#include "engine/layers/layer_context.h"
#include "engine/ops/attention/attention_block.h"

namespace trimtab {

/// The blocks of the keys of rank `source` that the queries of rank `rank` see, `run`
/// being the tokens of half a rank's share of a sequence: two of equal size for another's, one for
/// its own. That one is cut in three where scores ask how far a key is (`by_distance`: windows,
/// ALiBi, documents), for the two halves are not neighbours. What windows and documents hide is no
/// less than this: how much it is differs from rank to rank, and the slowest would set the pace.
std::vector<AttentionBlock> VisibleBlocks(int rank, int source, int64_t run, bool by_distance);

/// As AttentionForward over whole sequences, of this rank's queries: qkv [N, H*D + KV*(D + Dv)],
/// out [N, H*Dv] of the same type, log_sum_exp [B, H, T / cp]. `shape` is that of this rank's
/// share.
void ContextAttentionForward(const LayerContext& context, const AttentionShape& shape,
                             const Tensor& qkv, Tensor& out, Tensor& log_sum_exp);

/// As AttentionBackward: writes dqkv, with what the queries of all ranks say of this rank's keys
/// and values. Gradients of keys and values travel in the type of the activations.
void ContextAttentionBackward(const LayerContext& context, const AttentionShape& shape,
                              const Tensor& qkv, const Tensor& out, const Tensor& log_sum_exp,
                              const Tensor& dout, Tensor& dqkv);

}  // namespace trimtab

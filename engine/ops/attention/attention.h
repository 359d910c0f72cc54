// Causal multi-head attention over the fused projection, tile by tile: the T x T matrix is never
// stored (Dao et al., FlashAttention, arXiv:2205.14135; backward from the saved log-sum-exp).
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/attention/rotary.h"
#include "engine/ops/attention/row_layout.h"

namespace trimtab {

/// What becomes of the score s of a query and a key before the softmax, in this order: it is
/// multiplied by `scale`, capped to soft_cap * tanh(s / soft_cap) (Gemma 2, arXiv:2408.00118,
/// section 2), lowered by the head's slope for each token between the two (ALiBi, Press et al.,
/// arXiv:2108.12409), and hidden where the key is not among the `window` last ones, the query's own
/// included (Mistral, arXiv:2310.06825).
struct ScoreOptions {
  double scale = 0;         // 0 = 1 / sqrt(D)
  double soft_cap = 0;      // 0 = none
  int64_t window = 0;       // tokens; 0 = all
  int64_t alibi_heads = 0;  // heads of the whole model, which set the slopes; 0 = no ALiBi
  int64_t alibi_first = 0;  // which of them is the first here

  /// Whether scores are only scaled and masked causally.
  bool plain() const { return soft_cap == 0 && window == 0 && alibi_heads == 0; }
};

/// Shape of one attention call on this rank: heads are the rank's own.
struct AttentionShape {
  RowLayout rows{};       // B sequences of T rows each
  int64_t heads = 0;      // query heads
  int64_t kv_heads = 0;   // key/value heads; query head h reads head h / (heads / kv_heads)
  int64_t head_size = 0;  // D
  ScoreOptions scores{};
  int64_t value_head_size = 0;  // Dv, of values and of the result; 0 = D
  bool values_in_keys = false;  // of a paged cache: a value is the last Dv dims of its key
  double visible_share = 1;     // of the causal scores: what documents are expected to leave

  int64_t tokens() const { return rows.rows(); }  // N
  int64_t value_size() const { return value_head_size > 0 ? value_head_size : head_size; }
  /// What scores are multiplied by.
  double score_scale() const {
    return scores.scale > 0 ? scores.scale : 1.0 / std::sqrt(static_cast<double>(head_size));
  }
  /// The scores of one head and sequence that are computed.
  int64_t visible_scores() const;
  /// Of `causal` scores, which causality leaves, those that documents are expected to leave.
  int64_t Visible(int64_t causal) const {
    return visible_share == 1 ? causal : std::llround(visible_share * static_cast<double>(causal));
  }
  /// Columns of a token's queries, of its keys and values, of both, of the result.
  int64_t query_size() const { return heads * head_size; }
  int64_t kv_size() const { return kv_heads * (head_size + (values_in_keys ? 0 : value_size())); }
  int64_t qkv_size() const { return query_size() + kv_size(); }
  int64_t out_size() const { return heads * value_size(); }
};

/// Returns how many keys `rows` rows of one document see together, each at most `window` of them (0
/// = all up to itself).
int64_t CausalScores(int64_t rows, int64_t window);

/// FLOPs count the scores that are computed, the causal half of T x T, or what of it a window
/// leaves, and of that the share that documents leave: forward 2 products, backward 5, each 2*D per
/// score, or 2*Dv where values are a factor.
OpRecord AttentionForwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord AttentionBackwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);

/// Bytes of scratch the op takes under MemoryTag::kWorkspace while it runs. On cuda: none forward;
/// backward fp32 sums of dq [N, H*D], then row sums of dout * out [B, H, T].
int64_t AttentionForwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor);
int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor);

/// qkv [N, H*D + KV*(D + Dv)]: per token all query heads, then key heads, then value heads.
/// out [N, H*Dv] of the same type; log_sum_exp [B, H, T] fp32 is kept for the backward pass.
void AttentionForward(const AttentionShape& shape, const Tensor& qkv, Tensor& out,
                      Tensor& log_sum_exp);

/// Writes dqkv (same layout as qkv) from dout [N, H*Dv].
void AttentionBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv);

/// Cost of one rotation over qkv [N, H*D + KV*(D + Dv)].
OpRecord RopeRecord(const AttentionShape& shape, DType dtype = DType::kF32);

/// Turns the query and key heads of qkv in place by the positions of their rows. `inverse`: the
/// backward pass on dqkv.
void Rope(const AttentionShape& shape, const Rotary& rotary, bool inverse, Tensor& qkv);

}  // namespace trimtab

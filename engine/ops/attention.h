// Causal multi-head attention over the fused projection, tile by tile: the T x T matrix is never
// stored (Dao et al., FlashAttention, arXiv:2205.14135; backward from the saved log-sum-exp).
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/positions.h"

namespace trimtab {

/// Shape of one attention call on this rank: heads are the rank's own.
struct AttentionShape {
  int64_t batch = 0;      // B
  int64_t sequence = 0;   // T
  int64_t heads = 0;      // query heads
  int64_t kv_heads = 0;   // key/value heads; query head h reads head h / (heads / kv_heads)
  int64_t head_size = 0;  // D

  int64_t tokens() const { return batch * sequence; }  // N
  int64_t qkv_size() const { return (heads + 2 * kv_heads) * head_size; }
};

/// FLOPs count the causal half that is computed: forward 2 products, backward 5, each
/// 2*D*T*(T+1)/2 per head and sequence.
OpRecord AttentionForwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord AttentionBackwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);

/// Bytes of scratch the op takes under MemoryTag::kWorkspace while it runs. On cuda: none forward;
/// backward fp32 sums of dq [N, H*D], then row sums of dout * out [B, H, T].
int64_t AttentionForwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor);
int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, const Executor& executor);

/// qkv [N, (H + 2*KV)*D]: per token all query heads, then key heads, then value heads.
/// out [N, H*D] of the same type; log_sum_exp [B, H, T] fp32 is kept for the backward pass.
void AttentionForward(const AttentionShape& shape, const Tensor& qkv, Tensor& out,
                      Tensor& log_sum_exp);

/// Writes dqkv (same layout as qkv) from dout [N, H*D].
void AttentionBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv);

/// Cost of one rotation over qkv [N, (H + 2*KV)*D].
OpRecord RopeRecord(const AttentionShape& shape, DType dtype = DType::kF32);

/// Rotates the query and key heads of qkv in place by the positions of their T tokens, halves
/// convention of Llama (Su et al., RoFormer, arXiv:2104.09864; pair i is dims i and i + D/2,
/// frequency theta^(-2i/D)). `inverse` rotates back: the backward pass on dqkv.
void Rope(const AttentionShape& shape, const Positions& positions, double theta, bool inverse,
          Tensor& qkv);

}  // namespace trimtab

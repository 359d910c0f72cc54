// Queries, keys and values of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section
// 2.1): only the last R of a head's D dims turn by their position, and all heads share those of the
// key, which no compressed vector holds.
#pragma once

#include "engine/ops/attention/attention.h"

namespace trimtab {

/// `rotary_size` is R.
OpRecord JoinHeadsRecord(const AttentionShape& shape, int64_t rotary_size,
                         DType dtype = DType::kF32);
OpRecord JoinHeadsBackwardRecord(const AttentionShape& shape, int64_t rotary_size,
                                 DType dtype = DType::kF32);

/// Shapes of what is joined: query [N, H*D]; key_value [N, H*(D - R + Dv)], of each head what of
/// its key does not turn, then its value; key_rotary [N, R], what turns of all keys.
Shape JoinedKeyValueShape(const AttentionShape& shape, int64_t rotary_size);

/// qkv as AttentionForward reads it, with as many key heads as query heads: the last rotary.dims of
/// every query and key head turn by the positions of the rows.
void JoinHeads(const AttentionShape& shape, const Rotary& rotary, const Tensor& query,
               const Tensor& key_value, const Tensor& key_rotary, Tensor& qkv);

/// Gradients of the three from that of qkv.
void JoinHeadsBackward(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                       Tensor& dquery, Tensor& dkey_value, Tensor& dkey_rotary);

}  // namespace trimtab

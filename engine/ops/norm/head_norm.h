// RMSNorm of every query and key head of the fused projection, before rotary positions (query/key
// normalisation: Dehghani et al., arXiv:2302.05442, section 2, with RMSNorm as in Qwen3).
#pragma once

#include "engine/ops/attention/attention.h"
#include "engine/ops/norm/norm.h"

namespace trimtab {

OpRecord HeadNormForwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord HeadNormBackwardRecord(const AttentionShape& shape, DType dtype = DType::kF32,
                                DType gradient = DType::kF32);

/// out = qkv [N, (H + 2*KV)*D] with each query and key head x replaced by x * rstd * weight [D] of
/// its kind, rstd = 1 / sqrt(mean(x^2) + epsilon); values are copied. rstd [N, H + KV] fp32 is kept
/// for backward.
void HeadNormForward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                     const Tensor& key_weight, const NormOptions& options, Tensor& out,
                     Tensor& rstd);

/// Turns dqkv, the gradient of out, into that of qkv, in place. dweights [2, D], of queries, then
/// of keys, in fp32 or bf16, is overwritten with what the heads of the call say.
void HeadNormBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                      const Tensor& key_weight, const Tensor& rstd, bool weight_plus_one,
                      Tensor& dqkv, Tensor& dweights);

}  // namespace trimtab

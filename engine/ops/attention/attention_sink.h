// Attention sinks: a learned logit per head that takes part in the softmax as one more key would,
// whose value is zero (GPT-OSS; Xiao et al., arXiv:2309.17453). From what attention without one
// gave, so any kernel of it serves.
#pragma once

#include "engine/ops/attention/attention.h"

namespace trimtab {

OpRecord AttentionSinkRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord AttentionSinkBackwardRecord(const AttentionShape& shape, DType dtype = DType::kF32,
                                     DType gradient = DType::kF32);

/// Adds the sinks [H], of the type of out, to the softmax behind out [N, H*Dv] and log_sum_exp
/// [B, H, T], both in place: l' = ln(e^l + e^sink), out' = out * e^(l - l').
void AttentionSink(const AttentionShape& shape, const Tensor& sinks, Tensor& out,
                   Tensor& log_sum_exp);

/// dsinks [H] = -sum over tokens of e^(sink - l') * (dout . out'), overwritten, or added to with
/// `accumulate`; from what AttentionSink gave. The other gradients are those of AttentionBackward
/// given the same.
void AttentionSinkBackward(const AttentionShape& shape, const Tensor& sinks, const Tensor& out,
                           const Tensor& log_sum_exp, const Tensor& dout, Tensor& dsinks,
                           bool accumulate);

}  // namespace trimtab

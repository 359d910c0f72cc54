// RMSNorm over all query heads of a token together, and over all its key heads together, before
// rotary positions (OLMo 2, arXiv:2501.00656, section 3.1). A tensor-parallel rank has some of the
// heads, so each pass has two ops: the first makes this rank's sums over the columns of each token,
// which the caller adds up over the ranks, and the second uses them.
#pragma once

#include "engine/ops/attention/attention.h"
#include "engine/ops/norm/norm.h"

namespace trimtab {

/// The norms of one layer. Weights are those of this rank's heads.
struct WholeNorms {
  Tensor query_weight;  // [H*D]
  Tensor key_weight;    // [KV*D]
  // Elements that the sums run over, of all ranks: what several ranks have counts that often.
  int64_t query_count = 0;
  int64_t key_count = 0;
  NormOptions options{0};
};

OpRecord WholeNormSquaresRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord WholeNormForwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);
OpRecord WholeNormSlopesRecord(const AttentionShape& shape, DType dtype = DType::kF32,
                               DType gradient = DType::kF32);
OpRecord WholeNormBackwardRecord(const AttentionShape& shape, DType dtype = DType::kF32);

/// squares [N, 2] fp32: of qkv [N, (H + 2*KV)*D] the sums of squares of each token's queries, and
/// of its keys.
void WholeNormSquares(const AttentionShape& shape, const Tensor& qkv, Tensor& squares);

/// out = qkv with queries and keys x replaced by x * rstd * weight, rstd = 1 / sqrt(squares / count
/// + epsilon) with the squares of all ranks; values are copied.
void WholeNormForward(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                      const Tensor& squares, Tensor& out);

/// slopes [N, 2] fp32: of each token the sums of dout * weight * x * rstd, from dqkv, the gradient
/// of out. dweights [(H + KV)*D], of queries, then of keys, in fp32 or bf16, is overwritten.
void WholeNormSlopes(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                     const Tensor& squares, const Tensor& dqkv, Tensor& slopes, Tensor& dweights);

/// Turns dqkv, the gradient of out, into that of qkv, in place, with the slopes of all ranks.
void WholeNormBackward(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                       const Tensor& squares, const Tensor& slopes, Tensor& dqkv);

}  // namespace trimtab

// Softmax cross-entropy over a vocabulary that may be sharded (Megatron-LM, arXiv:1909.08053,
// section 3). The gradient replaces the logits, so the probabilities are never stored. Logits are
// fp32, bf16 or fp16; everything else is fp32.
//
// Whoever has the whole vocabulary reads the logits once and writes their gradient, in one op. A
// shard's ranks each sum up their own part of every row, gather these parts in one message, and
// make the gradient of theirs from them: the sums go by each rank's own largest logit until then
// (Milakov & Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867).
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

OpRecord CrossEntropyRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord CrossEntropyPartsRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord CrossEntropyGradRecord(int64_t rows, int64_t columns, int64_t shards,
                                DType dtype = DType::kF32);

/// Which ids the columns of logits are: id = start + column; columns whose id is >= valid are
/// padding: they never enter the loss and their gradient is zero.
struct VocabShard {
  int64_t start = 0;
  int64_t valid = 0;  // the unpadded vocabulary size V (of the whole vocabulary)
};

/// A target below 0 is none: the row's loss and its gradient are 0.
///
/// losses [N] of targets [N] (int32) from logits [N, V padded], which become
/// scale * (softmax - onehot(target)). `scale` [1] is a tensor because captured work must be able
/// to read a new one. Where `logits` are those of the model under a soft cap (ApplySoftCap), their
/// gradient is that of the ones before it.
void CrossEntropy(const Tensor& targets, int64_t vocab_size, const Tensor& scale, Tensor& logits,
                  Tensor& losses, const SoftCap& soft_cap = {});

/// parts [3, N] of one shard of the vocabulary, logits [N, Vlocal]: the largest logit of each row
/// (the lowest float where all is padding), the sum of exp(logit - largest), and the target's
/// logit, or 0 where it lies in another shard.
void CrossEntropyParts(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
                       Tensor& parts);

/// As CrossEntropy, of one shard of logits [N, Vlocal], from the parts of all S shards [S, 3, N].
/// Every shard gets the same losses.
void CrossEntropyGrad(const Tensor& targets, const VocabShard& shard, const Tensor& parts,
                      const Tensor& scale, Tensor& logits, Tensor& losses,
                      const SoftCap& soft_cap = {});

}  // namespace trimtab

// Softmax cross-entropy over a vocabulary that may be sharded (Megatron-LM, arXiv:1909.08053,
// section 3): three passes with an all-reduce of [N] values after the first and the second. The
// gradient replaces the logits, so the probabilities are never stored. Logits are fp32, bf16 or
// fp16; everything else is fp32.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

OpRecord CrossEntropyMaxRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord CrossEntropySumRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord CrossEntropyGradRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);

/// Which ids the columns of logits are: id = start + column; columns whose id is >= valid are
/// padding: they never enter the loss and their gradient is zero.
struct VocabShard {
  int64_t start = 0;
  int64_t valid = 0;  // the unpadded vocabulary size V (of the whole vocabulary)
};

/// row_max [N] = largest logit of each row of logits [N, Vlocal]; -inf for a shard all padding.
void CrossEntropyMax(const Tensor& logits, const VocabShard& shard, Tensor& row_max);

/// sums [2, N]: sum over the shard of exp(logit - row_max), and logit - row_max of the target, or
/// 0 when targets [N] (int32) lies in another shard. Adding `sums` over shards gives the whole.
void CrossEntropySum(const Tensor& logits, const Tensor& targets, const VocabShard& shard,
                     const Tensor& row_max, Tensor& sums);

/// losses [N] = log(sums[0]) - sums[1]; logits becomes scale * (softmax - onehot(target)). `scale`
/// [1] is a tensor because captured work must be able to read a new one. Where `logits` are those
/// of the model under a soft cap (ApplySoftCap), their gradient is that of the ones before it.
void CrossEntropyGrad(const Tensor& targets, const VocabShard& shard, const Tensor& row_max,
                      const Tensor& sums, const Tensor& scale, Tensor& logits, Tensor& losses,
                      const SoftCap& soft_cap = {});

}  // namespace trimtab

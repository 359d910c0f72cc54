// CPU kernels of attention_block.h.
#pragma once

#include "engine/ops/attention/attention_block.h"

namespace trimtab {

/// Scratch of one worker, in floats.
int64_t AttentionBlockForwardScratchCpu(const AttentionShape& shape, const AttentionBlock& block);
int64_t AttentionBlockBackwardScratchCpu(const AttentionBlock& block);

/// `scratch` holds as much for each of `threads` workers.
void AttentionBlockForwardCpu(int threads, const AttentionShape& shape, const RowLayout& keys,
                              const AttentionBlock& block, const float* qkv, const float* kv,
                              float* out, float* log_sum_exp, float* scratch);
void AttentionBlockBackwardCpu(int threads, const AttentionShape& shape, const RowLayout& keys,
                               const AttentionBlock& block, const float* qkv, const float* kv,
                               const float* out, const float* log_sum_exp, const float* dout,
                               float* dquery, float* dkv, float* scratch);

}  // namespace trimtab

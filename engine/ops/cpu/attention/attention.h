// CPU kernels of attention.h.
#pragma once

#include "engine/ops/attention/attention.h"

namespace trimtab {

/// Scratch of one worker, in floats.
int64_t AttentionForwardScratchCpu(const AttentionShape& shape);
int64_t AttentionBackwardScratchCpu(const AttentionShape& shape);

/// `scratch` holds as much for each of `threads` workers.
void AttentionForwardCpu(int threads, const AttentionShape& shape, const float* qkv, float* out,
                         float* log_sum_exp, float* scratch);
void AttentionBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                          const float* out, const float* log_sum_exp, const float* dout,
                          float* dqkv, float* scratch);

void RopeCpu(int threads, const AttentionShape& shape, const Rotary& rotary, bool inverse,
             float* qkv);

}  // namespace trimtab

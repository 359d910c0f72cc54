// The CPU kernel of PagedAttention (paged_attention.h).
#pragma once

#include "engine/ops/attention/paged_attention.h"

namespace trimtab {

/// Scratch of one worker, in floats.
int64_t PagedAttentionScratchCpu(const AttentionShape& shape, const PagedCache& cache);

/// `scratch` holds as much for each of `threads` workers. `sinks` is nullptr without.
void PagedAttentionCpu(int threads, const AttentionShape& shape, const float* qkv,
                       const PagedCache& cache, const float* sinks, float* out, float* scratch);

}  // namespace trimtab

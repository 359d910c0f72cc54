// The CPU kernel of StoreKv (paged_attention.h).
#pragma once

#include "engine/ops/attention/paged_attention.h"

namespace trimtab {

void StoreKvCpu(int threads, const AttentionShape& shape, const float* qkv,
                const PagedCache& cache);

}  // namespace trimtab

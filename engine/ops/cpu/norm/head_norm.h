// CPU kernels of head_norm.h.
#pragma once

#include "engine/ops/norm/head_norm.h"

namespace trimtab {

void HeadNormForwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                        const float* query_weight, const float* key_weight,
                        const NormOptions& options, float* out, float* rstd);
void HeadNormBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                         const float* query_weight, const float* key_weight, const float* rstd,
                         bool weight_plus_one, float* dqkv, float* dweights);

}  // namespace trimtab

// CPU kernels of latent_heads.h.
#pragma once

#include "engine/ops/attention/latent_heads.h"

namespace trimtab {

void JoinHeadsCpu(int threads, const AttentionShape& shape, const Rotary& rotary,
                  const float* query, const float* key_value, const float* key_rotary, float* qkv);
void JoinHeadsBackwardCpu(int threads, const AttentionShape& shape, const Rotary& rotary,
                          const float* dqkv, float* dquery, float* dkey_value, float* dkey_rotary);

}  // namespace trimtab

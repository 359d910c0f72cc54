// CPU kernels of sequence_routing.h.
#pragma once

#include <cstdint>

#include "engine/ops/moe/sequence_routing.h"

namespace trimtab {

void SinkhornChooseCpu(int threads, const SequenceRows& sequences, int64_t experts,
                       const float* logits, int32_t* choice);
void DropTokensCpu(int threads, const SequenceRows& sequences, int64_t experts, int64_t topk,
                   int64_t capacity, DropPolicy policy, const int32_t* choice, const float* weights,
                   int32_t* kept);

}  // namespace trimtab

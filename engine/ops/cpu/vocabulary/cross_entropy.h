// CPU kernels of cross_entropy.h.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"

namespace trimtab {

/// Rows of logits on this rank. `used` <= columns of them are ids of the vocabulary, the rest is
/// padding; column j is id first_id + j.
struct LogitsShape {
  int64_t rows;
  int64_t columns;
  int64_t used;
  int64_t first_id;
};

void CrossEntropyCpu(int threads, const LogitsShape& shape, const int32_t* targets, float scale,
                     const SoftCap& soft_cap, float* logits, float* losses);
void CrossEntropyPartsCpu(int threads, const LogitsShape& shape, const float* logits,
                          const int32_t* targets, float* parts);
void CrossEntropyGradCpu(int threads, const LogitsShape& shape, int64_t shards,
                         const int32_t* targets, const float* parts, float scale,
                         const SoftCap& soft_cap, float* logits, float* losses);

}  // namespace trimtab

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

void CrossEntropyMaxCpu(int threads, const LogitsShape& shape, const float* logits, float* row_max);
void CrossEntropySumCpu(int threads, const LogitsShape& shape, const float* logits,
                        const int32_t* targets, const float* row_max, float* sums);
void CrossEntropyGradCpu(int threads, const LogitsShape& shape, const int32_t* targets,
                         const float* row_max, const float* sums, float scale,
                         const SoftCap& soft_cap, float* logits, float* losses);

}  // namespace trimtab

// CPU kernels of whole_norm.h.
#pragma once

#include <array>

#include "engine/ops/norm/whole_norm.h"

namespace trimtab {

/// What one norm is over: columns of a token's qkv, of which this rank has some.
struct WholeNormPart {
  int64_t begin = 0;
  int64_t columns = 0;
  int64_t count = 0;  // of all ranks
  const float* weight = nullptr;
};
using WholeNormParts = std::array<WholeNormPart, 2>;  // queries, keys

void WholeNormSquaresCpu(int threads, const AttentionShape& shape, const float* qkv,
                         float* squares);
void WholeNormForwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                         const WholeNormParts& parts, const NormOptions& options,
                         const float* squares, float* out);
void WholeNormSlopesCpu(int threads, const AttentionShape& shape, const float* qkv,
                        const WholeNormParts& parts, const NormOptions& options,
                        const float* squares, const float* dqkv, float* slopes, float* dweights);
void WholeNormBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                          const WholeNormParts& parts, const NormOptions& options,
                          const float* squares, const float* slopes, float* dqkv);

}  // namespace trimtab

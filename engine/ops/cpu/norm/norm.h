// CPU kernels of norm.h. `bias` and `dbias` may be null.
#pragma once

#include <cstdint>

#include "engine/ops/norm/norm.h"

namespace trimtab {

struct NormShape {
  int64_t rows;
  int64_t columns;
};

void LayerNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                         const float* bias, const NormOptions& options, float* y, float* mean,
                         float* rstd);
void LayerNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                          const float* weight, const float* mean, const float* rstd, float* dx,
                          float* dweight, float* dbias, bool accumulate, bool weight_plus_one);
void RmsNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                       const NormOptions& options, float* y, float* rstd);
void RmsNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                        const float* weight, const float* rstd, float* dx, float* dweight,
                        bool accumulate, bool weight_plus_one);

}  // namespace trimtab

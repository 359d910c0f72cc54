// CPU kernels of norm.h.
#pragma once

#include <cstdint>

namespace trimtab {

struct NormShape {
  int64_t rows;
  int64_t columns;
};

void LayerNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                         const float* bias, double epsilon, float* y, float* mean, float* rstd);
void LayerNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                          const float* weight, const float* mean, const float* rstd, float* dx,
                          float* dweight, float* dbias, bool accumulate);
void RmsNormForwardCpu(int threads, const NormShape& shape, const float* x, const float* weight,
                       double epsilon, float* y, float* rstd);
void RmsNormBackwardCpu(int threads, const NormShape& shape, const float* dy, const float* x,
                        const float* weight, const float* rstd, float* dx, float* dweight,
                        bool accumulate);

}  // namespace trimtab

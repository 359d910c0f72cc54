// CPU kernels of activation.h, over plain rows.
#pragma once

#include <cstdint>

namespace trimtab {

void GeluForwardCpu(int threads, int64_t n, const float* x, float* y);
void GeluBackwardCpu(int threads, int64_t n, const float* x, const float* dy, float* dx);
void SwiGluForwardCpu(int threads, int64_t rows, int64_t columns, const float* gate_up, float* y);
void SwiGluBackwardCpu(int threads, int64_t rows, int64_t columns, const float* gate_up,
                       const float* dy, float* dgate_up);

}  // namespace trimtab

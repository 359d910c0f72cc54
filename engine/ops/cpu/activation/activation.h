// CPU kernels of activation.h, over plain rows.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"

namespace trimtab {

void ActivationForwardCpu(int threads, ActivationFunction function, int64_t n, const float* x,
                          float* y);
void ActivationBackwardCpu(int threads, ActivationFunction function, int64_t n, const float* x,
                           const float* dy, float* dx);
void GatedActivationForwardCpu(int threads, ActivationFunction function, int64_t rows,
                               int64_t columns, const float* gate_up, float* y);
void GatedActivationBackwardCpu(int threads, ActivationFunction function, int64_t rows,
                                int64_t columns, const float* gate_up, const float* dy,
                                float* dgate_up);

}  // namespace trimtab

// CPU kernel of adamw.h.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"

namespace trimtab {

void AdamWCpu(int threads, const AdamWCoefficients& coefficients, int64_t n, const float* gradient,
              float* parameter, float* m, float* v);

}  // namespace trimtab

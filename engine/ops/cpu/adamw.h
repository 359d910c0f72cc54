// CPU kernel of adamw.h.
#pragma once

#include <cstdint>

#include "engine/ops/adamw.h"
#include "engine/ops/math.h"

namespace trimtab {

void AdamWCpu(int threads, const AdamWCoefficients& coefficients, const Tensor& gradient,
              const AdamWState& state);

}  // namespace trimtab

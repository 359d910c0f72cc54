// CPU kernel of adamw.h.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"
#include "engine/ops/optimizer/adamw.h"

namespace trimtab {

void AdamWCpu(int threads, const AdamWCoefficients& coefficients, const Tensor& gradient,
              const AdamWState& state);

}  // namespace trimtab

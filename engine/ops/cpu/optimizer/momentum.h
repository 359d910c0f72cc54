// CPU kernel of engine/ops/optimizer/momentum.h.
#pragma once

#include "engine/ops/math.h"
#include "engine/ops/optimizer/momentum.h"

namespace trimtab {

void MomentumCpu(int threads, const MomentumCoefficients& coefficients, const Tensor& gradient,
                 const MomentumState& state);

}  // namespace trimtab

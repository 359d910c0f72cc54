// CPU kernels of engine/ops/optimizer/newton_schulz.h.
#pragma once

#include "engine/ops/optimizer/newton_schulz.h"

namespace trimtab {

void NormalizeCpu(int threads, float squares, float epsilon, Tensor& x);
void QuinticCpu(int threads, const QuinticFactors& factors, const Tensor& gram, Tensor& squared);

}  // namespace trimtab

// Activation functions of the MLP. All tensors of a call are of one type: fp32, bf16 or fp16.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

OpRecord ActivationForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord ActivationBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
/// `columns` is F, the width of the output (the input has 2F).
OpRecord GatedActivationForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord GatedActivationBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);

/// y = f(x); any equal shapes.
void ActivationForward(ActivationFunction function, const Tensor& x, Tensor& y);
/// dx = dy * f'(x); dx may be dy.
void ActivationBackward(ActivationFunction function, const Tensor& x, const Tensor& dy, Tensor& dx);

/// y [N, F] = f(gate) * GateFactor(up), for all but kClampedSwish f(gate) * up, where gate_up [N,
/// 2F] holds gate then up in each row (Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202:
/// SwiGLU with f = silu, GeGLU with gelu).
void GatedActivationForward(ActivationFunction function, const Tensor& gate_up, Tensor& y);
/// dgate_up [N, 2F] from dy [N, F].
void GatedActivationBackward(ActivationFunction function, const Tensor& gate_up, const Tensor& dy,
                             Tensor& dgate_up);

}  // namespace trimtab

// Activation functions of the MLP.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord GeluForwardRecord(int64_t rows, int64_t columns);
OpRecord GeluBackwardRecord(int64_t rows, int64_t columns);
/// `columns` is F, the width of the output (the input has 2F).
OpRecord SwiGluForwardRecord(int64_t rows, int64_t columns);
OpRecord SwiGluBackwardRecord(int64_t rows, int64_t columns);

/// y = gelu(x), tanh approximation (Hendrycks & Gimpel, arXiv:1606.08415); any equal shapes.
void GeluForward(const Tensor& x, Tensor& y);
/// dx = dy * gelu'(x); dx may be dy.
void GeluBackward(const Tensor& x, const Tensor& dy, Tensor& dx);

/// y [N, F] = silu(gate) * up, where gate_up [N, 2F] holds gate then up in each row
/// (Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202).
void SwiGluForward(const Tensor& gate_up, Tensor& y);
/// dgate_up [N, 2F] from dy [N, F].
void SwiGluBackward(const Tensor& gate_up, const Tensor& dy, Tensor& dgate_up);

}  // namespace trimtab

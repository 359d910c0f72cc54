// Activation functions of the MLP. All tensors of a call are of one type: fp32, bf16 or fp16.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord GeluForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord GeluBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
/// `columns` is F, the width of the output (the input has 2F).
OpRecord SwiGluForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord SwiGluBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);

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

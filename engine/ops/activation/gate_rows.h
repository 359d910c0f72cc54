// Rows multiplied by the sigmoid of a number each: the gate of shared experts (Qwen2-MoE).
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord GateRowsRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord GateRowsBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);

/// y [N, C] = sigmoid(gate [N, 1], fp32) * x [N, C]; y may be x.
void GateRows(const Tensor& gate, const Tensor& x, Tensor& y);
/// From dy [N, C]: dx [N, C] = sigmoid(gate) * dy, dgate [N, 1] (fp32) = sigmoid'(gate) * (dy . x).
void GateRowsBackward(const Tensor& gate, const Tensor& x, const Tensor& dy, Tensor& dx,
                      Tensor& dgate);

}  // namespace trimtab

// Plain element-wise work on whole tensors of equal size.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

OpRecord AddRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord CopyRecord(int64_t numel, DType source = DType::kF32, DType destination = DType::kF32);
OpRecord FillRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord SumRecord(int64_t numel);
OpRecord SumSquaresRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord ApplySoftCapRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord ClampRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord ClampBackwardRecord(int64_t numel, DType dtype = DType::kF32);
OpRecord AddBiasRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                       bool addend = false);

/// y += x, both of one type of fp32, bf16, fp16.
void Add(const Tensor& x, Tensor& y);
/// destination = source; between fp32, bf16 and fp16 it converts, rounding to nearest even.
void Copy(const Tensor& source, Tensor& destination);
/// Columns [to, to + columns) of destination = columns [from, from + columns) of source, matrices
/// of as many rows; converts as Copy does.
void CopyColumns(const Tensor& source, int64_t from, Tensor& destination, int64_t to,
                 int64_t columns);
/// x = value in every element (fp32, bf16, fp16; uint16, int8 and fp8 only with 0).
void Fill(Tensor& x, float value);
/// x = soft_cap.Apply(x) in every element (fp32, bf16, fp16).
void ApplySoftCap(const SoftCap& soft_cap, Tensor& x);
/// y = x kept within [-limit, limit], both of one type.
void Clamp(const Tensor& x, float limit, Tensor& y);
/// dx, the gradient of y, becomes that of x: 0 where x is outside.
void ClampBackward(const Tensor& x, float limit, Tensor& dx);
/// x [rows, C] += bias [C] in every row, and += addend [rows, C], if that is defined. All of one
/// type.
void AddBias(const Tensor& bias, Tensor& x, const Tensor& addend = {});

/// sum [1] fp32 = (sum +) all elements of x (fp32). Added up in double, in an order that depends on
/// numel alone, not on threads.
void Sum(const Tensor& x, Tensor& sum, bool accumulate);
/// sum [1] fp32 = the sum of squares of x (fp32, bf16, fp16), in the same way.
void SumSquares(const Tensor& x, Tensor& sum);

}  // namespace trimtab

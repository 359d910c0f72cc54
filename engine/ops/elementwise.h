// Plain element-wise work on whole tensors of equal size.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord AddRecord(int64_t numel);
OpRecord CopyRecord(int64_t numel);
OpRecord FillRecord(int64_t numel);
OpRecord SumSquaresRecord(int64_t numel);
OpRecord AddBiasRecord(int64_t rows, int64_t columns);

/// y += x.
void Add(const Tensor& x, Tensor& y);
/// destination = source.
void Copy(const Tensor& source, Tensor& destination);
/// x = value in every element.
void Fill(Tensor& x, float value);
/// x [rows, C] += bias [C] in every row.
void AddBias(const Tensor& bias, Tensor& x);

/// Sum of squares in double, added in an order that depends only on numel (not on threads).
/// 0 on meta.
double SumSquares(const Tensor& x);
/// Sum of all elements in double, same order guarantee. 0 on meta. Records nothing: for reports.
double Sum(const Tensor& x);

}  // namespace trimtab

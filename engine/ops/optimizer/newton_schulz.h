// What Newton-Schulz iterations of Muon (Jordan et al., "Muon: An optimizer for hidden layers",
// 2024) do beside their matrix products: engine/optim/orthogonalize.h puts them together.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord NormalizeRecord(int64_t numel, DType dtype = DType::kF32);
/// x (fp32, bf16) becomes x / (sqrt(squares [1] fp32) + epsilon).
void Normalize(const Tensor& squares, float epsilon, Tensor& x);

OpRecord QuinticRecord(int64_t rows, DType dtype = DType::kF32);
/// squared [n, n] (fp32, bf16), the square of gram, becomes a I + b gram + c squared: what the
/// quintic polynomial a x + b x^3 + c x^5 multiplies x by, where gram is x^T x or x x^T.
struct QuinticFactors {
  float a = 0;
  float b = 0;
  float c = 0;
};
void Quintic(const QuinticFactors& factors, const Tensor& gram, Tensor& squared);

}  // namespace trimtab

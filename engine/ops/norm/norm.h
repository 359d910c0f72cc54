// LayerNorm (Ba et al., arXiv:1607.06450) and RMSNorm (Zhang & Sennrich, arXiv:1910.07467) over
// the last dimension of x [rows, C]. x, y, dx, dy, weight and bias are of one type (fp32, bf16 or
// fp16), the statistics fp32, the gradients of weight and bias of one type of their own. LayerNorm
// does without a bias where `bias` and `dbias` are undefined.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/fp8/quantize.h"

namespace trimtab {

struct NormOptions {
  double epsilon = 0;
  /// Multiplies by 1 + weight: weights near 0 keep more digits of what they add to 1.
  bool weight_plus_one = false;

  /// As a number, it stands for itself.
  NormOptions(double e, bool plus_one = false)  // NOLINT(google-explicit-constructor)
      : epsilon(e), weight_plus_one(plus_one) {}
};

OpRecord LayerNormForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                                bool bias = true);
OpRecord LayerNormBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                                 DType gradient = DType::kF32, bool bias = true);
OpRecord RmsNormForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord RmsNormBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                               DType gradient = DType::kF32);

/// y [rows, C] = (x - mean) * rstd * weight + bias; mean and rstd [rows] are kept for backward.
void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const NormOptions& options, Tensor& y, Tensor& mean, Tensor& rstd);

/// Adds to dx (the residual stream's gradient is already there). dweight and dbias [C] are
/// overwritten, or added to with `accumulate`. `copies` of dx, e5m2, where they are defined.
void LayerNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd, Tensor& dx, Tensor& dweight, Tensor& dbias,
                       bool accumulate, bool weight_plus_one = false, const Fp8Beside& copies = {});

/// y [rows, C] = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon).
void RmsNormForward(const Tensor& x, const Tensor& weight, const NormOptions& options, Tensor& y,
                    Tensor& rstd);

/// Adds to dx; dweight [C] is overwritten, or added to with `accumulate`; `copies` likewise.
void RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                     Tensor& dx, Tensor& dweight, bool accumulate, bool weight_plus_one = false,
                     const Fp8Beside& copies = {});

}  // namespace trimtab

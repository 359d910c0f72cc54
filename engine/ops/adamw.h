// AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101).
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

struct AdamWStep {
  float learning_rate = 0;
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float gradient_scale = 1;  // clipping: gradients are multiplied by it first
  int64_t step = 1;          // 1 for the first update: bias correction
};

/// Reads parameter, gradient and both moments, writes parameter and both moments.
OpRecord AdamWRecord(int64_t numel);

/// Updates parameter, m and v (all [numel], fp32) in place.
void AdamW(const AdamWStep& step, const Tensor& gradient, Tensor& parameter, Tensor& m, Tensor& v);

}  // namespace trimtab

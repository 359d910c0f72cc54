// AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101), with
// weights and state in fewer bits if asked: arithmetic is fp32 whatever they are stored in.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

struct AdamWConfig {
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float learning_rate_factor = 1;  // of the learning rate among the scalars
};

/// What an update changes; all [n] but the scales.
struct AdamWState {
  Tensor weight{};   // fp32, bf16 or fp16
  Tensor master{};   // undefined when weight is fp32; else fp32, or uint16: see JoinMaster
  Tensor m{};        // fp32, bf16, fp16 or int8
  Tensor v{};        // of m's type; never negative
  Tensor m_scale{};  // with fp16 and int8 moments: see Moment
  Tensor v_scale{};
};

/// Types of the tensors of an update. `master` is ignored when weight is fp32.
struct AdamWTypes {
  DType weight = DType::kF32;
  DType master = DType::kF32;
  DType moments = DType::kF32;
  DType gradient = DType::kF32;
};

/// Reads everything, writes everything but the gradient. Of the weight's type.
OpRecord AdamWRecord(int64_t numel, const AdamWTypes& types = {});

/// One step from gradient [n] (fp32 or bf16) and `scalars`.
void AdamW(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
           AdamWState& state);

}  // namespace trimtab

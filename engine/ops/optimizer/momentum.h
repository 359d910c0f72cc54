// Updates by momentum: SGD's in one pass, and both ends of an update that is made something else
// in between (Muon): gradients to momentum, and what became of it to weights.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

struct MomentumConfig {
  float momentum = 0;
  bool nesterov = false;
  float weight_decay = 0;          // of weights, decoupled as AdamW's
  float learning_rate_factor = 1;  // of the learning rate among the scalars
  float update_scale = 1;          // of what weights are moved along
};

/// What an update changes; all [n]. Either `weight`, or `update`, or both may be undefined.
struct MomentumState {
  MasterWeight weight{};
  Moment momentum{};  // undefined: the gradient itself is the update, as it is
  Tensor update{};    // fp32 or bf16: becomes what weights are moved along
};

struct MomentumTypes {
  bool has_weight = true;
  DType weight = DType::kF32;
  DType master = DType::kF32;
  bool has_momentum = true;
  DType momentum = DType::kF32;
  DType gradient = DType::kF32;
  bool has_update = false;
  DType update = DType::kF32;
};

/// Each tensor is read, and each but the gradient written, once; `update` is only written.
OpRecord MomentumRecord(int64_t numel, const MomentumTypes& types = {});

/// One step from gradient [n] (fp32 or bf16) and `scalars`, as torch.optim.SGD but for decay:
/// momentum = config.momentum * momentum + g, where g is the gradient times kGradientScale; u = g +
/// config.momentum * momentum with Nesterov's momentum, else the momentum; weight = weight * (1 -
/// rate * weight_decay) - rate * update_scale * u.
void MomentumUpdate(const MomentumConfig& config, const Tensor& scalars, const Tensor& gradient,
                    MomentumState& state);

}  // namespace trimtab

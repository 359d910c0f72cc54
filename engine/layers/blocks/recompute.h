// Selective activation recomputation (Korthikanti et al., arXiv:2205.05198, section 5; the modules
// are Megatron-Core's recompute_modules).
//
// Forward drops what LayerContext::Recomputes names, and Backward makes whatever it finds missing
// again before it uses it:
//
//   module     what is dropped                        what it is made from   where
//   core_attn  attention's result, its log-sum-exp    queries, keys, values  core_attention.cc
//   layernorm  both norms' results                    the residual stream    ..._block.cc
//   mlp_act    the activation function's result       what went into it      mlp.cc
//   mlp        norm, fc1's result and activation      the residual stream    ..._block.cc
//   logits     the gradient of the logits             the final norm         lm_head.cc
//
// A result goes in whatever form the linear layer after it keeps it, an fp8 copy included. The
// product of that layer is not made again, so no activations are summed over the ranks twice.
// Megatron-Core keeps the result of core_attn; here it goes too, since tile by tile there is little
// else to drop. Whole layers are the model's to recompute (engine/model/gpt_model.cc).
#pragma once

#include "engine/device/device.h"

namespace trimtab {

/// While one lives, what runs is reported as recomputation of the piece around it.
class RecomputePass {
 public:
  explicit RecomputePass(Device& device) : device_(device), around_(device.piece()) {
    device.EnterPiece({around_.kind, PassKind::kRecompute, around_.layer});
  }
  ~RecomputePass() { device_.EnterPiece(around_); }
  RecomputePass(const RecomputePass&) = delete;
  RecomputePass& operator=(const RecomputePass&) = delete;

 private:
  Device& device_;
  const PieceRecord around_;
};

}  // namespace trimtab

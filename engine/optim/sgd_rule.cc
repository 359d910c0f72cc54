#include "engine/optim/sgd_rule.h"

#include "engine/ops/optimizer/momentum.h"

namespace trimtab {

void SgdRule::Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) {
  for (const UpdateRun& run : runs) {
    MomentumState state = {
        .weight = {inputs.shards.Weights(run.part), inputs.shards.Masters(run.part)},
        .momentum = inputs.state[0].At(run.state_begin, run.part.numel, run.first_block)};
    MomentumUpdate({.momentum = momentum_,
                    .nesterov = nesterov_,
                    .weight_decay = run.setting.weight_decay,
                    .learning_rate_factor = run.setting.learning_rate_factor},
                   inputs.scalars, inputs.shards.Gradients(run.part), state);
  }
}

}  // namespace trimtab

#include "engine/optim/adamw_rule.h"

namespace trimtab {

AdamWRule::AdamWRule(const OptimizerConfig& config)
    : config_({.beta1 = static_cast<float>(config.beta1),
               .beta2 = static_cast<float>(config.beta2),
               .epsilon = static_cast<float>(config.epsilon)}) {}

std::vector<StateSlot> AdamWRule::Slots(const TrainingTypes& types) {
  return {MomentSlot("m", types), MomentSlot("v", types, MomentSign::kNever)};
}

void AdamWRule::Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) {
  for (const UpdateRun& run : runs) {
    config_.weight_decay = run.setting.weight_decay;
    config_.learning_rate_factor = run.setting.learning_rate_factor;
    const Moment m = inputs.state[0].At(run.state_begin, run.part.numel, run.first_block);
    const Moment v = inputs.state[1].At(run.state_begin, run.part.numel, run.first_block);
    AdamWState state = {.weight = inputs.shards.Weights(run.part),
                        .master = inputs.shards.Masters(run.part),
                        .m = m.values,
                        .v = v.values,
                        .m_scale = m.scales,
                        .v_scale = v.scales};
    AdamW(config_, inputs.scalars, inputs.shards.Gradients(run.part), state);
  }
}

}  // namespace trimtab

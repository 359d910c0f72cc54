#include "engine/optim/update_rule.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/name_pattern.h"
#include "engine/optim/adamw_rule.h"

namespace trimtab {

UpdateSetting SettingOf(const OptimizerConfig& config, const ParameterSpec& spec) {
  const auto group = std::ranges::find_if(config.groups, [&](const ParameterGroup& each) {
    return std::ranges::any_of(each.match, [&](const std::string& pattern) {
      return MatchesPattern(pattern, spec.name.view());
    });
  });
  bool decays = spec.is_matrix;
  UpdateSetting setting = {.kind = config.kind};
  if (group != config.groups.end()) {
    setting.learning_rate_factor = static_cast<float>(group->learning_rate_factor);
    decays = group->weight_decay.value_or(decays);
  }
  if (decays) setting.weight_decay = static_cast<float>(config.weight_decay);
  return setting;
}

std::vector<StateSlot> SlotsOf(OptimizerKind kind, const TrainingTypes& types) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return AdamWRule::Slots(types);
  }
  TRIMTAB_ASSERT(false, "optimizer {}", static_cast<int>(kind));
}

std::vector<StateSlot> SlotsOf(const OptimizerConfig& config, const ParameterSpec& spec,
                               const TrainingTypes& types) {
  if (!spec.trainable) return {};
  return SlotsOf(SettingOf(config, spec).kind, types);
}

std::unique_ptr<UpdateRule> MakeUpdateRule(OptimizerKind kind, const OptimizerConfig& config) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamWRule>(config);
  }
  TRIMTAB_ASSERT(false, "optimizer {}", static_cast<int>(kind));
}

}  // namespace trimtab

#include "engine/optim/update_rule.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/model/name_pattern.h"
#include "engine/optim/adamw_rule.h"
#include "engine/optim/muon_rule.h"
#include "engine/optim/sgd_rule.h"

namespace trimtab {

UpdateSetting SettingOf(const OptimizerConfig& config, const ParameterSpec& spec) {
  const auto group = std::ranges::find_if(config.groups, [&](const ParameterGroup& each) {
    return std::ranges::any_of(each.match, [&](const std::string& pattern) {
      return MatchesPattern(pattern, spec.name.view());
    });
  });
  bool decays = spec.is_matrix;
  UpdateSetting setting = {.kind = config.kind};
  if (config.kind == OptimizerKind::kMuon && !TakesMuon(spec)) {
    setting.kind = OptimizerKind::kAdamW;
  }
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
    case OptimizerKind::kSgd:
    case OptimizerKind::kMuon:
      return {MomentSlot("momentum", types)};
  }
  TRIMTAB_ASSERT(false, "optimizer {}", static_cast<int>(kind));
}

std::vector<StateSlot> SlotsOf(const OptimizerConfig& config, const ParameterSpec& spec,
                               const TrainingTypes& types) {
  if (!spec.trainable) return {};
  return SlotsOf(SettingOf(config, spec).kind, types);
}

std::unique_ptr<UpdateRule> MakeUpdateRule(OptimizerKind kind, const OptimizerConfig& config,
                                           const ParallelContext& parallel,
                                           const ParameterShards& shards,
                                           std::span<const UpdateRun> runs) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamWRule>(config);
    case OptimizerKind::kSgd:
      return std::make_unique<SgdRule>(config);
    case OptimizerKind::kMuon:
      return std::make_unique<MuonRule>(config, parallel, shards, runs);
  }
  TRIMTAB_ASSERT(false, "optimizer {}", static_cast<int>(kind));
}

}  // namespace trimtab

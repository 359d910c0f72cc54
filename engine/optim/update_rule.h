// UpdateRule: how the parameters of an optimizer are updated from their gradients. README.md says
// how to add one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/layout/precision.h"
#include "engine/config/run/optimizer_config.h"
#include "engine/optim/slot_storage.h"
#include "engine/optim/state_slot.h"
#include "engine/parallel/parameter_shards.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// How a parameter is updated.
struct UpdateSetting {
  OptimizerKind kind = OptimizerKind::kAdamW;
  float learning_rate_factor = 1;
  float weight_decay = 0;

  bool operator==(const UpdateSetting&) const = default;
};

/// Returns the setting of a parameter: its group's, or by default weight decay in matrices alone.
UpdateSetting SettingOf(const OptimizerConfig& config, const ParameterSpec& spec);

/// Neighbouring elements of equal setting, as far as this rank updates them.
struct UpdateRun {
  OwnedPart part;
  UpdateSetting setting;
  int64_t state_begin = 0;  // among all elements of the rule
  int64_t first_block = 0;  // among the rule's blocks of scaled state

  int64_t shard_end() const { return part.shard_begin + part.numel; }
};

/// What a rule works on. `scalars`: UpdateScalar, in device memory.
struct UpdateInputs {
  ParameterShards& shards;
  const Tensor& scalars;
  std::span<const SlotStorage> state;  // one for each slot of the rule
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Updates weights, masters and state from reduced gradients. Device work only; nothing changes
  /// where the scalars say that the gradients are not finite.
  virtual void Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) = 0;
};

/// Returns the slots of the rule `kind`, by which its state is allocated and checkpointed.
std::vector<StateSlot> SlotsOf(OptimizerKind kind, const TrainingTypes& types);
/// Returns the slots that a parameter has state in: those of its rule, or, frozen, none.
std::vector<StateSlot> SlotsOf(const OptimizerConfig& config, const ParameterSpec& spec,
                               const TrainingTypes& types);

/// Makes the rule `kind`. `runs` are all that it will be asked to update. `parallel` and `shards`
/// must outlive it.
std::unique_ptr<UpdateRule> MakeUpdateRule(OptimizerKind kind, const OptimizerConfig& config,
                                           const ParallelContext& parallel,
                                           const ParameterShards& shards,
                                           std::span<const UpdateRun> runs);

}  // namespace trimtab

// Optimizer: updates what this rank keeps of the parameters (all, or with sharding a part:
// engine/parallel) by the rules of its configuration, with global-norm gradient clipping.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run/optimizer_config.h"
#include "engine/optim/gradient_norm.h"
#include "engine/optim/slot_storage.h"
#include "engine/optim/update_plan.h"
#include "engine/optim/update_rule.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

/// What an update came to.
struct UpdateOutcome {
  double grad_norm = 0;  // global, before clipping, loss scale taken out
  bool applied = true;   // false: the norm is not finite, and nothing was changed
};

class Optimizer {
 public:
  /// Allocates the state of every rule, zeroed, for the elements that this rank updates.
  Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
            ParameterShards& shards);

  /// Returns the slots that a parameter has state in.
  std::vector<StateSlot> SlotsOf(const ParameterSpec& spec) const;

  // fp32 values of a parameter's slot, elements [begin, begin + values.size()) of the flat order,
  // which this rank must update.

  /// Sets them. Where a slot's elements share scales, whole blocks must be given, or the last ones
  /// of a parameter.
  void WriteState(const Parameter& parameter, size_t slot, int64_t begin,
                  std::span<const float> values);
  void ReadState(const Parameter& parameter, size_t slot, int64_t begin,
                 std::span<float> values) const;

  /// Sends what the coming update depends on to the device. `updates` counts those applied before.
  void Prepare(double learning_rate, int64_t updates, double loss_scale);
  /// One update with reduced gradients: norm, clipping, the rules. Device work only.
  void Update();
  /// Waits for it.
  UpdateOutcome Outcome() const;

 private:
  /// A rule with its state.
  struct Rule {
    OptimizerKind kind = OptimizerKind::kAdamW;
    std::unique_ptr<UpdateRule> rule;
    std::vector<UpdateRun> runs;
    std::vector<SlotStorage> slots;
  };

  const Rule& RuleOf(const Parameter& parameter) const;
  /// Calls visit(run, within, first, count) for the elements of a parameter by the runs they are
  /// in: `count` of them from element `within` of the run, and `first` of those asked about, on.
  template <typename Visit>
  void ForEachRun(const Parameter& parameter, int64_t begin, size_t count,
                  const Visit& visit) const;

  OptimizerConfig config_;
  TrainingTypes types_;
  ParameterShards& shards_;
  std::vector<Rule> rules_;
  GradientNorm norm_;
  Tensor scalars_;  // [kUpdateScalarCount]
};

}  // namespace trimtab

// Which elements a rank updates together, and where their state is.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run/optimizer_config.h"
#include "engine/optim/update_rule.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

/// What one rule updates on this rank.
struct RulePlan {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::vector<UpdateRun> runs{};  // in the order of the shard
  int64_t numel = 0;              // of its state, gaps between runs included
  int64_t blocks = 0;             // of scaled state
};

/// Divides the shard into runs, by rule. Runs join across parameters, so that updates are few; no
/// block of scaled state reaches into rows that other tensor-parallel ranks hold too (their scales
/// would differ, and so what they update), or into another run or another matrix of Muon's. Padding
/// between runs has state too, that of the run it follows or, at the beginning, precedes.
std::vector<RulePlan> PlanUpdates(const OptimizerConfig& config, const ParameterShards& shards,
                                  bool scaled_state);

}  // namespace trimtab

#include "engine/optim/update_plan.h"

#include <algorithm>
#include <optional>

#include "engine/base/units.h"
#include "engine/ops/optimizer/update_state.h"
#include "engine/optim/muon_matrices.h"

namespace trimtab {
namespace {

/// Elements of the flat order at which another run begins.
std::vector<int64_t> BlockCuts(const OptimizerConfig& config, const ParameterShards& shards) {
  std::vector<int64_t> cuts;
  for (const Parameter* each : shards.store().parameters()) {
    const FlatRange copied = each->copied();
    if (!each->spec.trainable) continue;
    if (SettingOf(config, each->spec).kind == OptimizerKind::kMuon) {
      for (const FlatRange& part : MuonPartsOf(*each)) {
        if (part.begin % kMomentBlock != 0) cuts.push_back(part.begin);
      }
    }
    if (each->spec.copied.copies == 1 || copied.begin % kMomentBlock == 0) continue;
    cuts.push_back(copied.begin);
    cuts.push_back(RoundUp(copied.end, kMomentBlock));
  }
  std::ranges::sort(cuts);
  return cuts;
}

/// Collects the runs of the shard, in its order.
class Planner {
 public:
  Planner(const ParameterShards& shards, std::vector<int64_t> cuts)
      : shards_(shards), cuts_(std::move(cuts)) {}

  /// Adds elements of one unit.
  void Add(FlatRange range, const UpdateSetting& setting) {
    for (auto cut = std::ranges::upper_bound(cuts_, range.begin);
         cut != cuts_.end() && *cut < range.end; ++cut) {
      AddWhole({range.begin, *cut}, setting);
      range.begin = *cut;
    }
    AddWhole(range, setting);
  }

  /// `kind`: the rule of a shard that is nothing but padding.
  std::vector<RulePlan> Take(OptimizerKind kind) {
    if (plans_.empty()) {
      plans_.push_back({.kind = kind, .numel = shards_.numel()});
    } else {
      RulePlan& last = plans_[last_rule_];
      last.numel += shards_.numel() - last.runs.back().shard_end();
    }
    for (RulePlan& plan : plans_) {
      plan.blocks = std::max(CeilDiv(plan.numel, kMomentBlock), EndBlock(plan));
    }
    return std::move(plans_);
  }

 private:
  void AddWhole(const FlatRange& range, const UpdateSetting& setting) {
    const OwnedPart part = shards_.Within(range);
    if (part.numel == 0) return;
    UpdateRun* last = plans_.empty() ? nullptr : &plans_[last_rule_].runs.back();
    const bool joins = last != nullptr && last->setting == setting &&
                       last->part.begin + last->part.numel == part.begin &&
                       last->shard_end() == part.shard_begin &&
                       !std::ranges::binary_search(cuts_, part.begin);
    if (joins) {
      last->part.numel += part.numel;
      plans_[last_rule_].numel += part.numel;
      return;
    }
    const int64_t gap = part.shard_begin - (last != nullptr ? last->shard_end() : 0);
    if (last != nullptr) plans_[last_rule_].numel += gap;
    const bool first = last == nullptr;
    RulePlan& plan = PlanOf(setting.kind);
    UpdateRun run = {
        .part = part, .setting = setting, .state_begin = plan.numel + (first ? gap : 0)};
    run.first_block = std::max(run.state_begin / kMomentBlock, EndBlock(plan));
    plan.numel = run.state_begin + part.numel;
    plan.runs.push_back(run);
  }

  RulePlan& PlanOf(OptimizerKind kind) {
    const auto found = std::ranges::find(plans_, kind, &RulePlan::kind);
    last_rule_ = static_cast<size_t>(found - plans_.begin());
    if (found == plans_.end()) plans_.push_back({.kind = kind});
    return plans_[last_rule_];
  }

  /// The first block that no run of the plan has.
  static int64_t EndBlock(const RulePlan& plan) {
    if (plan.runs.empty()) return 0;
    const UpdateRun& last = plan.runs.back();
    return last.first_block + CeilDiv(last.part.numel, kMomentBlock);
  }

  const ParameterShards& shards_;
  std::vector<int64_t> cuts_;
  std::vector<RulePlan> plans_;
  size_t last_rule_ = 0;  // of the run that was added last
};

}  // namespace

std::vector<RulePlan> PlanUpdates(const OptimizerConfig& config, const ParameterShards& shards,
                                  bool scaled_state) {
  Planner planner(shards, scaled_state ? BlockCuts(config, shards) : std::vector<int64_t>());
  for (const ParameterUnit& unit : shards.store().units()) {
    if (!unit.trainable) continue;
    // With the gaps that align parameters, so that runs join and blocks stay whole; without the
    // padding of the unit.
    FlatRange range;
    std::optional<UpdateSetting> setting;
    for (const Parameter* each : shards.store().ParametersOf(unit)) {
      const UpdateSetting own = SettingOf(config, each->spec);
      if (setting && own != *setting) {
        range.end = each->offset;
        planner.Add(range, *setting);
      }
      if (own != setting) range.begin = each->offset;
      setting = own;
    }
    range.end = unit.replicated.end;
    if (setting) planner.Add(range, *setting);
  }
  return planner.Take(config.kind);
}

}  // namespace trimtab

#include "engine/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

Optimizer::Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
                     ParameterShards& shards)
    : config_(config),
      types_(TypesOf(parallel.layout.numerics)),
      shards_(shards),
      norm_(parallel, shards) {
  for (RulePlan& plan : PlanUpdates(config, shards, IsScaledMoment(types_.moments))) {
    Rule& added = rules_.emplace_back();
    added.kind = plan.kind;
    for (const StateSlot& slot : trimtab::SlotsOf(plan.kind, types_)) {
      added.slots.emplace_back(shards.device(), slot, plan.numel, plan.blocks);
    }
    added.runs = std::move(plan.runs);
    added.rule = MakeUpdateRule(plan.kind, config, parallel, shards, added.runs);
  }
  scalars_ =
      Tensor::Empty(shards.device(), {kUpdateScalarCount}, DType::kF32, MemoryTag::kOptimizer);
  Fill(scalars_, 0.0f);
}

std::vector<StateSlot> Optimizer::SlotsOf(const ParameterSpec& spec) const {
  return trimtab::SlotsOf(config_, spec, types_);
}

const Optimizer::Rule& Optimizer::RuleOf(const Parameter& parameter) const {
  const OptimizerKind kind = SettingOf(config_, parameter.spec).kind;
  const auto found = std::ranges::find(rules_, kind, &Rule::kind);
  TRIMTAB_ASSERT(found != rules_.end(), "no part of {} is updated here", parameter.spec.name);
  return *found;
}

template <typename Visit>
void Optimizer::ForEachRun(const Parameter& parameter, int64_t begin, size_t count,
                           const Visit& visit) const {
  const OwnedPart part = shards_.Owned(begin, count);
  for (const UpdateRun& run : RuleOf(parameter).runs) {
    const int64_t first = std::max(part.shard_begin, run.part.shard_begin);
    const int64_t end = std::min(part.shard_begin + part.numel, run.shard_end());
    if (first >= end) continue;
    visit(run, first - run.part.shard_begin, static_cast<size_t>(first - part.shard_begin),
          static_cast<size_t>(end - first));
  }
}

void Optimizer::WriteState(const Parameter& parameter, size_t slot, int64_t begin,
                           std::span<const float> values) {
  const SlotStorage& storage = RuleOf(parameter).slots[slot];
  ForEachRun(parameter, begin, values.size(),
             [&](const UpdateRun& run, int64_t within, size_t first, size_t count) {
               const int64_t block = std::max<int64_t>(1, storage.slot().block);
               TRIMTAB_ASSERT(within % block == 0, "{} is written in whole blocks, not from {}",
                              storage.slot().name, within);
               storage.Write(run.state_begin + within, run.first_block + within / block,
                             values.subspan(first, count));
             });
}

void Optimizer::ReadState(const Parameter& parameter, size_t slot, int64_t begin,
                          std::span<float> values) const {
  const SlotStorage& storage = RuleOf(parameter).slots[slot];
  ForEachRun(parameter, begin, values.size(),
             [&](const UpdateRun& run, int64_t within, size_t first, size_t count) {
               const int64_t block = std::max<int64_t>(1, storage.slot().block);
               storage.Read(run.state_begin + within, run.first_block + within / block,
                            within % block, values.subspan(first, count));
             });
}

void Optimizer::Prepare(double learning_rate, int64_t updates, double loss_scale) {
  const double steps = static_cast<double>(updates + 1);
  // In double: 1 - beta^step loses half its digits in fp32 while beta^step is near 1.
  const std::array<float, 4> scalars = {
      static_cast<float>(learning_rate),
      static_cast<float>(1.0 / (1.0 - std::pow(config_.beta1, steps))),
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(config_.beta2, steps))),
      static_cast<float>(loss_scale)};
  static_assert(kLearningRate == 0 && kBiasCorrection == 1 && kRootCorrection == 2 &&
                kLossScale == 3);
  Tensor target = scalars_.Slice(0, {static_cast<int64_t>(scalars.size())});
  CopyFromHost(target, scalars);
}

void Optimizer::Update() {
  Clip(norm_.Squares(), static_cast<float>(config_.clip_grad), scalars_);
  for (const Rule& each : rules_) {
    each.rule->Update({.shards = shards_, .scalars = scalars_, .state = each.slots}, each.runs);
  }
}

UpdateOutcome Optimizer::Outcome() const {
  std::array<float, kUpdateScalarCount> scalars{};
  CopyToHost(scalars_, scalars);
  return {.grad_norm = scalars[kGradientNorm], .applied = scalars[kApply] != 0.0f};
}

}  // namespace trimtab

#include "cost_model/closed_form/plan_range.h"

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr RecomputeModules kMlp = {1U << static_cast<int>(RecomputeModule::kMlp)};
constexpr RecomputeModules kMlpAct = {1U << static_cast<int>(RecomputeModule::kMlpAct)};

/// With all that its modules are made of: a whole MLP has the activation function, too.
unsigned PartsOf(const RecomputeConfig& plan) {
  const unsigned bits = plan.modules.bits;
  return plan.modules.Has(RecomputeModule::kMlp) ? bits | kMlpAct.bits : bits;
}

RecomputeConfig PlanOfParts(unsigned parts) {
  if (parts == 0) return {};
  if ((parts & kMlp.bits) != 0) parts &= ~unsigned{kMlpAct.bits};
  return {.kind = RecomputeKind::kSelective, .modules = {static_cast<uint8_t>(parts)}};
}

}  // namespace

bool IsBlock(const RecomputeConfig& plan) {
  return plan.kind == RecomputeKind::kFull && plan.method == RecomputeMethod::kBlock;
}

bool IsUniform(const RecomputeConfig& plan) {
  return plan.kind == RecomputeKind::kFull && plan.method == RecomputeMethod::kUniform;
}

RecomputeConfig Ungrouped(const RecomputeConfig& plan) {
  return IsUniform(plan) ? RecomputeConfig{.kind = RecomputeKind::kFull} : plan;
}

bool SamePlanForAll(const RecomputeConfig& plan) {
  return plan.kind != RecomputeKind::kFull || plan.num_layers == -1;
}

PlanRange RangeOf(std::span<const RecomputeConfig> plans) {
  TRIMTAB_ASSERT(!plans.empty(), "a range of no plans");
  if (plans.front().kind != RecomputeKind::kSelective) return {plans.front(), plans.back()};
  unsigned in_all = PartsOf(plans.front());
  unsigned in_any = in_all;
  for (const RecomputeConfig& plan : plans) {
    in_all &= PartsOf(plan);
    in_any |= PartsOf(plan);
  }
  return {PlanOfParts(in_all), PlanOfParts(in_any)};
}

}  // namespace trimtab

#include "search/space/recompute_plans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Modules by what recomputing them takes, the least first: a set weighs as much as the heaviest of
/// them, before all others.
constexpr std::array kByWeight = {RecomputeModule::kLayerNorm, RecomputeModule::kMlpAct,
                                  RecomputeModule::kCoreAttn, RecomputeModule::kLogits,
                                  RecomputeModule::kMlp};
static_assert(kByWeight.size() == kRecomputeModuleCount);

RecomputeModules SetOfWeight(unsigned weight) {
  RecomputeModules set;
  for (size_t i = 0; i < kByWeight.size(); ++i) {
    if ((weight >> i & 1) != 0) set.Add(kByWeight[i]);
  }
  return set;
}

unsigned WeightOf(const RecomputeModules& set) {
  unsigned weight = 0;
  for (size_t i = 0; i < kByWeight.size(); ++i) {
    if (set.Has(kByWeight[i])) weight |= 1U << i;
  }
  return weight;
}

/// By weight.
const std::vector<RecomputeConfig>& EverySet() {
  static const std::vector<RecomputeConfig> sets = [] {
    std::vector<RecomputeConfig> made;
    for (unsigned weight = 1; weight < 1U << kByWeight.size(); ++weight) {
      const RecomputeModules set = SetOfWeight(weight);
      if (set.Has(RecomputeModule::kMlp) && set.Has(RecomputeModule::kMlpAct)) continue;
      made.push_back({.kind = RecomputeKind::kSelective, .modules = set});
    }
    return made;
  }();
  return sets;
}

}  // namespace

std::span<const RecomputeConfig> PlanFamilies() {
  static const std::array<RecomputeConfig, 3> families = {ParseRecompute("none", "plan"),
                                                          ParseRecompute("full", "plan"),
                                                          ParseRecompute("selective", "plan")};
  return families;
}

bool OfOneFamily(const RecomputeConfig& one, const RecomputeConfig& other) {
  return one.kind == other.kind;
}

int64_t PlansOfFamily(const RecomputeConfig& one, int64_t layers) {
  switch (one.kind) {
    case RecomputeKind::kNone:
      return 1;
    case RecomputeKind::kSelective:
      return std::ssize(EverySet());
    case RecomputeKind::kFull:
      return layers + (layers - 1);  // a group of one layer is none
  }
  TRIMTAB_ASSERT(false, "recompute kind {}", static_cast<int>(one.kind));
}

RecomputeConfig PlanOfFamily(const RecomputeConfig& one, int64_t layers, int64_t number) {
  switch (one.kind) {
    case RecomputeKind::kNone:
      return one;
    case RecomputeKind::kSelective:
      return EverySet()[static_cast<size_t>(number)];
    case RecomputeKind::kFull:
      return number < layers ? FullOf(number + 1, layers) : UniformOf(number - layers + 2);
  }
  TRIMTAB_ASSERT(false, "recompute kind {}", static_cast<int>(one.kind));
}

size_t LighterPart(std::span<const RecomputeConfig> plans) {
  TRIMTAB_ASSERT(plans.size() > 1, "{} plans are not divided", plans.size());
  if (plans.front().kind != RecomputeKind::kSelective) {
    const auto alone = [](const auto& plan) { return plan.method == RecomputeMethod::kBlock; };
    const auto on_their_own = static_cast<size_t>(
        std::partition_point(plans.begin(), plans.end(), alone) - plans.begin());
    const bool both = on_their_own > 0 && on_their_own < plans.size();
    return both ? on_their_own : plans.size() / 2;
  }
  // Those without the heaviest module that not all have.
  const unsigned heaviest =
      std::bit_floor(WeightOf(plans.front().modules) ^ WeightOf(plans.back().modules));
  const auto without = [&](const RecomputeConfig& plan) {
    return (WeightOf(plan.modules) & heaviest) == 0;
  };
  return static_cast<size_t>(std::partition_point(plans.begin(), plans.end(), without) -
                             plans.begin());
}

}  // namespace trimtab

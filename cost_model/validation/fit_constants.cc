#include "cost_model/validation/fit_constants.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// Ranges: what kernels and networks of the kind are published to reach, with room for the software
// around them; spreads: how much of that range is usual.
const std::vector<ConstantKind>& Kinds() {
  static const std::vector<ConstantKind> kinds = {
      {"gemm_efficiency", Outcome::kStepTime, false, 0.10, 0.40, 0.90, 0},
      {"gemm_efficiency fp8", Outcome::kStepTime, false, 0.10, 0.40, 0.85, 0},
      {"attention", Outcome::kStepTime, false, 0.15, 0.25, 0.90, 0},
      {"flash_attention_2", Outcome::kStepTime, false, 0.15, 0.25, 1.0, 0},
      {"bandwidth_efficiency", Outcome::kStepTime, false, 0.07, 0.70, 0.92, 0},
      {"link_efficiency", Outcome::kStepTime, false, 0.08, 0.60, 0.88, 0},
      {"network_efficiency", Outcome::kStepTime, false, 0.15, 0.40, 0.95, 0},
      {"shared_ports", Outcome::kStepTime, false, 0.30, 0.25, 1.0, 1},
      {"link_latency_s", Outcome::kStepTime, false, 0.5, 0.5e-6, 20e-6, 0},
      {"compute", Outcome::kStepTime, true, 0.06, 0.75, 1.25, 1},
      {"compute_per_year", Outcome::kStepTime, true, 0.5, 0.01, 0.3, 0},
      {"attention", Outcome::kStepTime, true, 0.20, 0.4, 1.8, 1},
      {"memory_traffic", Outcome::kStepTime, true, 0.25, 0.5, 3.5, 1},
      {"loss_bytes", Outcome::kStepTime, true, 0.5, 2, 150, 0},
      {"host_layer_s", Outcome::kStepTime, true, 0.6, 5e-6, 3e-3, 0},
      {"expert_launch_s", Outcome::kStepTime, true, 0.7, 1e-6, 2e-4, 0},
      {"tp_wait_s", Outcome::kStepTime, true, 0.7, 1e-6, 1e-4, 0},
      {"tp_exposed", Outcome::kStepTime, true, 0.35, 0.1, 2.5, 1},
      {"dp_exposed", Outcome::kStepTime, true, 0.5, 0.02, 1.3, 0},
      {"network", Outcome::kStepTime, true, 0.25, 0.15, 1.6, 1},
      {"dispatch_s", Outcome::kStepTime, true, 0.5, 1e-4, 6e-3, 0},
      {"chunk_s", Outcome::kStepTime, true, 0.5, 1e-6, 5e-5, 0},
      {"slowdown", Outcome::kStepTime, true, 0.5, 0.02, 0.6, 0},
      {"recompute", Outcome::kStepTime, true, 0.1, 0.5, 1.1, 1},
      {"step_s", Outcome::kStepTime, true, 0.7, 0.002, 0.5, 0},
      {"memory_bytes", Outcome::kPeakMemory, true, 0.6, 2e8, 2e10, 0},
      {"activations", Outcome::kPeakMemory, true, 0.25, 0.6, 2.5, 1},
      {"logit_bytes", Outcome::kPeakMemory, true, 0.7, 0.5, 16, 0},
  };
  return kinds;
}

const ConstantKind& KindOf(std::string_view name, bool of_stack) {
  for (const ConstantKind& kind : Kinds()) {
    if (kind.name == name && kind.of_stack == of_stack) return kind;
  }
  TRIMTAB_ASSERT(false, "no constant is called {}", name);
  return Kinds().front();
}

double LastOf(const EfficiencyCurve& curve) { return curve.points.back().efficiency; }

void Scale(EfficiencyCurve& curve, double factor) {
  for (EfficiencyPoint& point : curve.points) point.efficiency *= factor;
}

struct ProfileNumber {
  const char* kind;
  Quantity HardwareProfile::*member;
};
constexpr ProfileNumber kProfileNumbers[] = {
    {"flash_attention_2", &HardwareProfile::flash_attention_2},
    {"bandwidth_efficiency", &HardwareProfile::bandwidth_efficiency},
    {"link_efficiency", &HardwareProfile::link_efficiency},
    {"network_efficiency", &HardwareProfile::network_efficiency},
    {"shared_ports", &HardwareProfile::shared_ports},
    {"link_latency_s", &HardwareProfile::link_latency_s},
};

FitConstant ConstantOf(const ConstantKind& kind, const std::string& owner, double shipped,
                       double prior) {
  FitConstant constant = {&kind,
                          owner,
                          /*shared=*/false,
                          shipped,
                          std::log(prior / shipped),
                          std::log(kind.least / shipped),
                          std::log(kind.most / shipped),
                          kind.spread};
  // A machine may lie outside of what is usual for others.
  constant.least = std::min(constant.least, constant.prior);
  constant.most = std::max(constant.most, constant.prior);
  return constant;
}

std::string OwnerOf(const ConstantKind& kind, const HardwareProfile& profile) {
  const bool of_networks = kind.name == "network_efficiency" || kind.name == "shared_ports";
  return of_networks ? kNetworks : profile.generation;
}

void AddOfProfile(const HardwareProfile& profile, std::vector<FitConstant>& constants) {
  const auto add = [&](const char* name, double shipped, double prior) {
    if (prior <= 0 || shipped <= 0) return;
    const ConstantKind& kind = KindOf(name, false);
    const std::string owner = OwnerOf(kind, profile);
    const bool there = std::ranges::any_of(constants, [&](const FitConstant& each) {
      return each.kind == &kind && each.owner == owner;
    });
    if (!there) constants.push_back(ConstantOf(kind, owner, shipped, prior));
  };
  add("gemm_efficiency", LastOf(profile.gemm_efficiency), profile.gemm_efficiency.prior);
  const auto fp8 = profile.gemm_efficiency_of.find("fp8");
  if (fp8 != profile.gemm_efficiency_of.end()) {
    add("gemm_efficiency fp8", LastOf(fp8->second), fp8->second.prior);
  }
  add("attention", LastOf(profile.attention_forward), profile.attention_forward.prior);
  for (const ProfileNumber& number : kProfileNumbers) {
    const Quantity& quantity = profile.*number.member;
    add(number.kind, quantity.value, quantity.prior);
  }
}

/// The number of `stack` that a constant of stacks is of.
template <typename Stack>
auto& NumberOf(Stack& stack, const ConstantKind& kind) {
  for (const StackNumber& number : StackNumbers()) {
    if (kind.name == number.key) return stack.*number.member;
  }
  TRIMTAB_ASSERT(false, "stacks have no number {}", kind.name);
  return stack.compute;
}

/// A factor of what was expected of `kind`, unless it is there. It may be off by as much as what a
/// stack has of its own: how frameworks are written changes together, with their libraries.
void AddShared(const ConstantKind& kind, double expected, std::vector<FitConstant>& constants) {
  const auto same = [&](const FitConstant& each) {
    return each.shared && each.kind == &kind && each.shipped == expected;
  };
  if (std::ranges::any_of(constants, same)) return;
  FitConstant shared = ConstantOf(kind, "stacks", expected, expected);
  shared.shared = true;
  constants.push_back(shared);
}

void AddOfStack(const SoftwareStack& stack, std::vector<FitConstant>& constants) {
  for (const ConstantKind& kind : Kinds()) {
    if (!kind.of_stack) continue;
    const Quantity& quantity = NumberOf(stack, kind);
    if (quantity.prior <= 0 || quantity.value <= 0) continue;
    constants.push_back(ConstantOf(kind, stack.name, quantity.value, quantity.prior));
    AddShared(kind, quantity.prior, constants);
  }
}

}  // namespace

std::span<const ConstantKind> ConstantKinds() { return Kinds(); }

std::vector<FitConstant> ConstantsOf(std::span<const Cluster* const> clusters, Outcome outcome) {
  std::vector<FitConstant> constants;
  std::vector<std::string> generations;
  std::vector<std::string> stacks;
  const auto is_new = [](const std::string& name, std::vector<std::string>& seen) {
    if (std::ranges::find(seen, name) != seen.end()) return false;
    seen.push_back(name);
    return true;
  };
  for (const Cluster* cluster : clusters) {
    if (is_new(cluster->profile.generation, generations)) {
      AddOfProfile(cluster->profile, constants);
    }
    if (is_new(cluster->stack.name, stacks)) {
      AddOfStack(LoadSoftwareStack(cluster->stack.name), constants);
    }
  }
  std::erase_if(constants, [&](const FitConstant& each) { return each.kind->outcome != outcome; });
  // Last those that the others have in common: then solving for them is fast (cholesky.h).
  std::ranges::stable_partition(
      constants, [](const FitConstant& each) { return each.kind->of_stack && !each.shared; });
  return constants;
}

std::string FitConstant::Name() const {
  return shared ? fmt::format("{} {} of {:.3g}", owner, kind->name, shipped)
                : fmt::format("{} {}", owner, kind->name);
}

bool Concerns(const FitConstant& constant, const Cluster& cluster) {
  if (constant.shared) return NumberOf(cluster.stack, *constant.kind).prior == constant.shipped;
  return constant.owner ==
         (constant.kind->of_stack ? cluster.stack.name : OwnerOf(*constant.kind, cluster.profile));
}

void Apply(const FitConstant& constant, double factor, Cluster& cluster) {
  const std::string& name = constant.kind->name;
  if (constant.kind->of_stack) {
    double& value = NumberOf(cluster.stack, *constant.kind).value;
    if (value <= 0) return;
    // What a run switches may lie outside of what is usual.
    const double least = std::min(value, constant.kind->least);
    const double most = std::max(value, constant.kind->most);
    value = std::clamp(value * factor, least, most);
    return;
  }
  HardwareProfile& profile = cluster.profile;
  for (const ProfileNumber& number : kProfileNumbers) {
    if (name == number.kind) (profile.*number.member).value *= factor;
  }
  if (name == "gemm_efficiency") Scale(profile.gemm_efficiency, factor);
  if (name == "gemm_efficiency fp8" && profile.gemm_efficiency_of.contains("fp8")) {
    Scale(profile.gemm_efficiency_of["fp8"], factor);
  }
  if (name == "attention") {
    Scale(profile.attention_forward, factor);
    Scale(profile.attention_backward, factor);
  }
}

}  // namespace trimtab

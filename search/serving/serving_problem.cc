// What a problem of serving says of itself; its space is in serving_space.cc.
#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "search/serving/serving_space.h"

namespace trimtab {
namespace {

constexpr std::array<std::string_view, 4> kObjectives = {"throughput", "latency", "price", "gpus"};

}  // namespace

std::string_view Name(ServingObjective objective) {
  return kObjectives[static_cast<size_t>(objective)];
}

ServingObjective ParseServingObjective(const std::string& name) {
  const auto found = std::find(kObjectives.begin(), kObjectives.end(), name);
  if (found != kObjectives.end()) {
    return static_cast<ServingObjective>(found - kObjectives.begin());
  }
  throw UsageError(fmt::format(
      "--objective: '{}'; expected throughput, latency, price or gpus when serving", name));
}

int64_t ServingProblem::joined_ranks() const {
  return std::max(cluster.ranks_per_node, cluster.profile.link_domain);
}

CopyRates ServingProblem::CopyOf(const ServingConfig& config) const {
  return CopyRatesOf(cluster.profile, config.layout.world_size() <= joined_ranks());
}

double ServingProblem::AcceptanceOf(const ServingConfig& config) const {
  return config.draft.tokens > 0 ? draft_acceptance : lookup_acceptance.value_or(0);
}

bool ServingProblem::limits_quality() const {
  return std::ranges::any_of(requirements, &Requirement::of_quality);
}

double ServingProblem::PerplexityRiseOf(const ServingConfig& config) const {
  return limits_quality() ? quality.rises.at({config.weights, config.cache}) : 1;
}

const Requirement* ServingProblem::MissedQuality(const ServingConfig& config) const {
  const LoadReport nothing_else;
  const Service service = {.report = nothing_else, .perplexity_rise = PerplexityRiseOf(config)};
  for (const Requirement& each : requirements) {
    if (each.of_quality() && each.Strain(service) >= 1) return &each;
  }
  return nullptr;
}

}  // namespace trimtab

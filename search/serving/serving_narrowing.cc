#include "search/serving/serving_narrowing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

/// Whether a dimension's values multiply the ranks of a candidate.
bool IsOfRanks(const ServingDimension& dimension) {
  const std::string_view name = dimension.name;
  return name == "tp" || name == "pp" || name == "replicas";
}

void RequireDimensions(const ServingProblem& problem) {
  std::vector<std::string> names;
  for (const ServingDimension& each : ServingDimensions()) names.emplace_back(each.name);
  for (const auto& [name, values] : problem.allowed) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw UsageError(fmt::format("{}: no dimension '{}' of serving{}", kAllowFlags, name,
                                 SuggestName(name, names)));
  }
}

}  // namespace

void RequireChoosable(const ServingProblem& problem) {
  RequireDimensions(problem);
  int64_t ranks = 1;
  std::string key;
  for (const ServingDimension& each : ServingDimensions()) {
    const auto allowed = problem.allowed.find(each.name);
    if (allowed == problem.allowed.end()) continue;
    std::vector<int64_t> values;
    for (const std::string& text : allowed->second) {
      values.push_back(each.Parse(text, kAllowFlags));
    }
    if (!IsOfRanks(each)) continue;
    const int64_t least = std::ranges::min(values);
    ranks *= least;
    key += fmt::format("{}{}={}", key.empty() ? "" : ",", each.name, least);
    // At once: a product of three may have more than 64 bits.
    if (ranks <= problem.ranks()) continue;
    throw InfeasibleError(
        fmt::format("{} needs {} ranks; the cluster has {}", key, ranks, problem.ranks()));
  }
}

}  // namespace trimtab

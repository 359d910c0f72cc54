#include "tools/search/space_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tools/cli/table.h"

namespace trimtab {

std::string SpaceText(const SpaceDescription& space, bool bold) {
  Table dimensions({{"dimension"}, {"values"}});
  for (const SpaceDescription::Dimension& each : space.dimensions) {
    dimensions.AddRow({each.name, fmt::format("{}", fmt::join(each.values, ", "))});
  }
  const SpaceCounts& counts = space.counts;
  std::string text = dimensions.ToText(bold);
  text += fmt::format("\n{} candidates, {} break no rule\n", counts.enumerated, counts.legal);
  for (const auto& [rule, count] : counts.pruned) text += fmt::format("  {:>9}  {}\n", count, rule);
  return text;
}

nlohmann::json SpaceJson(const SpaceDescription& space) {
  nlohmann::json dimensions = nlohmann::json::array();
  for (const SpaceDescription::Dimension& each : space.dimensions) {
    dimensions.push_back({{"name", each.name}, {"values", each.values}});
  }
  nlohmann::json pruned = nlohmann::json::array();
  for (const auto& [rule, count] : space.counts.pruned) {
    pruned.push_back({{"rule", rule}, {"count", count}});
  }
  return {{"schema_version", 1},
          {"dimensions", dimensions},
          {"size", space.counts.enumerated},
          {"legal", space.counts.legal},
          {"pruned", pruned}};
}

}  // namespace trimtab

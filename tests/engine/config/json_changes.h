// JsonChanges: a document, and the same with one value changed, for each of its values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trimtab {

/// A document with one value changed, and where: "/optimizer/beta1".
struct JsonChange {
  std::string path;
  nlohmann::json json;
};

/// Returns a change of every value of `json`: switches are turned, signed integers doubled,
/// unsigned ones changed by 1, other numbers halved; 0 becomes 1 or 0.5. `others` has, by path,
/// what other values become; a string that it lacks gets an x at its end, and an empty list one
/// string.
inline std::vector<JsonChange> JsonChanges(const nlohmann::json& json,
                                           const std::map<std::string, nlohmann::json>& others) {
  std::vector<JsonChange> changes;
  const auto changed = [&others](const std::string& path, const nlohmann::json& value) {
    if (const auto other = others.find(path); other != others.end()) return other->second;
    if (value.is_boolean()) return nlohmann::json(!value.get<bool>());
    if (value.is_number_unsigned()) return nlohmann::json(value.get<uint64_t>() ^ 1);
    if (value.is_number_integer()) {
      return nlohmann::json(std::max<int64_t>(1, 2 * value.get<int64_t>()));
    }
    if (value.is_number_float()) {
      return nlohmann::json(value == 0.0 ? 0.5 : value.get<double>() / 2);
    }
    if (value.is_string()) return nlohmann::json(value.get<std::string>() + "x");
    return nlohmann::json::array({"x"});
  };
  const nlohmann::json leaves = json.flatten();
  for (const auto& [path, leaf] : leaves.items()) {
    const nlohmann::json::json_pointer place(path);
    JsonChange& change = changes.emplace_back(JsonChange{.path = path, .json = json});
    change.json[place] = changed(path, json.at(place));
  }
  return changes;
}

}  // namespace trimtab

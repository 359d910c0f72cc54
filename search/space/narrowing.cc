#include "search/space/narrowing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/layout/layout_keys.h"
#include "search/space/in_file.h"
#include "search/space/space_rows.h"

namespace trimtab {
namespace {

/// The row whose value decides the key's: the last that is called alike, for most. What no row has
/// taken of the ranks is data parallel, once the pipeline has its share.
std::string RowName(const std::string& key) {
  if (key == "dp") return "pp";
  const bool state = key == "master" || key == "moments" || key == "grads";
  return state ? "optimizer state" : key;
}

std::optional<size_t> FindRow(const std::string& key) {
  const std::vector<SpaceRow>& rows = SpaceRows();
  const std::string name = RowName(key);
  const auto found = std::find_if(rows.rbegin(), rows.rend(),
                                  [&](const SpaceRow& row) { return name == row.name; });
  if (found == rows.rend()) return std::nullopt;
  return static_cast<size_t>(rows.rend() - found) - 1;
}

void RequireKey(const NarrowingKeys& keys, const std::string& name, const std::string& flag) {
  const std::vector<std::string> valid = keys.names();
  if (std::find(valid.begin(), valid.end(), name) != valid.end()) return;
  throw UsageError(
      fmt::format("{}: no dimension is called '{}'{}", flag, name, SuggestName(name, valid)));
}

class LayoutNarrowingKeys final : public NarrowingKeys {
 public:
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const LayoutKey& key : LayoutKeys()) {
      if (FindRow(key.name)) names.emplace_back(key.name);
    }
    return names;
  }

  std::string Canonical(const std::string& key, const std::string& text,
                        const std::string& flag) const override {
    ParallelConfig layout;
    const LayoutKey& row = LayoutKeyCalled(key);
    row.parse(text, flag + " " + key, layout);
    return row.print(layout);
  }
};

}  // namespace

const NarrowingKeys& TrainingKeys() {
  static const LayoutNarrowingKeys keys;
  return keys;
}

bool Narrowing::Allows(const ParallelConfig& layout) const {
  return Allows(LayoutKeyCalled(key).print(layout));
}

bool Narrowing::Allows(const std::string& value) const {
  return (std::find(values.begin(), values.end(), value) != values.end()) != forbidden;
}

std::vector<Narrowing> ParseNarrowings(const std::vector<std::string>& words,
                                       const std::string& flag, bool forbidden,
                                       const NarrowingKeys& keys) {
  std::vector<Narrowing> narrowings;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos && narrowings.empty()) {
      throw UsageError(fmt::format("{}: \"{}\": expected KEY=VALUE, such as tp=8", flag, word));
    }
    if (equals != std::string::npos) {
      const std::string key = word.substr(0, equals);
      RequireKey(keys, key, flag);
      for (const Narrowing& each : narrowings) {
        if (each.key == key) throw UsageError(fmt::format("{}: {} is given twice", flag, key));
      }
      narrowings.push_back({.key = key, .forbidden = forbidden, .values = {}});
    }
    Narrowing& last = narrowings.back();
    const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
    last.values.push_back(keys.Canonical(last.key, value, flag));
  }
  return narrowings;
}

std::vector<Narrowing> ParseAllNarrowings(const std::vector<std::string>& fixed,
                                          const std::vector<std::string>& allowed,
                                          const std::vector<std::string>& forbidden,
                                          const NarrowingKeys& keys) {
  std::vector<Narrowing> all = ParseNarrowings(fixed, "--fix", /*forbidden=*/false, keys);
  for (const Narrowing& each : all) {
    if (each.values.size() == 1) continue;
    throw UsageError(fmt::format("--fix {}: {} values; expected one, --allow takes several",
                                 each.key, each.values.size()));
  }
  for (const auto& [words, flag, forbids] :
       {std::tuple(allowed, "--allow", false), std::tuple(forbidden, "--forbid", true)}) {
    const std::vector<Narrowing> more = ParseNarrowings(words, flag, forbids, keys);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

size_t RowThatBinds(const std::string& key) {
  const std::optional<size_t> row = FindRow(key);
  TRIMTAB_ASSERT(row.has_value(), "no row binds {}", key);
  return *row;
}

nlohmann::json ToJson(const std::vector<Narrowing>& narrowings) {
  nlohmann::json json = nlohmann::json::array();
  for (const Narrowing& each : narrowings) {
    json.push_back({{"key", each.key}, {each.forbidden ? "forbid" : "allow", each.values}});
  }
  return json;
}

Narrowing NarrowingFromJson(const nlohmann::json& json, const std::string& where,
                            const NarrowingKeys& keys) {
  StrictObject object(json, where);
  Narrowing narrowing;
  object.Line("key", narrowing.key, Need::kRequired);
  const nlohmann::json* const allowed = object.Find("allow");
  const nlohmann::json* const forbidden = object.Find("forbid");
  const nlohmann::json* const values = allowed != nullptr ? allowed : forbidden;
  if ((allowed != nullptr) == (forbidden != nullptr)) {
    throw InputError(fmt::format("{}: expected either \"allow\" or \"forbid\"", where));
  }
  narrowing.forbidden = forbidden != nullptr;
  const std::string list = narrowing.forbidden ? "forbid" : "allow";
  if (!values->is_array() || values->empty()) object.Refuse(list, "an array that is not empty");
  object.Finish();
  InFile("", [&] {
    RequireKey(keys, narrowing.key, object.Where("key"));
    for (const nlohmann::json& value : *values) {
      if (!value.is_string()) object.Refuse(list, "texts");
      narrowing.values.push_back(
          keys.Canonical(narrowing.key, value.get<std::string>(), object.Where(list) + ":"));
    }
  });
  return narrowing;
}

}  // namespace trimtab

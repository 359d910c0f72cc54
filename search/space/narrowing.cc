#include "search/space/narrowing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/layout_keys.h"
#include "engine/config/strict_json.h"
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

const LayoutKey& KeyCalled(const std::string& name) {
  const auto keys = LayoutKeys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const LayoutKey& key) { return name == key.name; });
  TRIMTAB_ASSERT(found != keys.end(), "no key is called {}", name);
  return *found;
}

void RequireKey(const std::string& name, const std::string& flag) {
  std::vector<std::string> valid;
  for (const LayoutKey& key : LayoutKeys()) {
    if (FindRow(key.name)) valid.emplace_back(key.name);
  }
  if (std::find(valid.begin(), valid.end(), name) != valid.end()) return;
  throw UsageError(
      fmt::format("{}: no dimension is called '{}'{}", flag, name, SuggestName(name, valid)));
}

/// The value as a layout prints it.
std::string Canonical(const std::string& key, const std::string& text, const std::string& flag) {
  ParallelConfig layout;
  const LayoutKey& row = KeyCalled(key);
  row.parse(text, flag + " " + key, layout);
  return row.print(layout);
}

}  // namespace

bool Narrowing::Allows(const ParallelConfig& layout) const {
  const std::string value = KeyCalled(key).print(layout);
  return (std::find(values.begin(), values.end(), value) != values.end()) != forbidden;
}

std::vector<Narrowing> ParseNarrowings(const std::vector<std::string>& words,
                                       const std::string& flag, bool forbidden) {
  std::vector<Narrowing> narrowings;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos && narrowings.empty()) {
      throw UsageError(fmt::format("{}: \"{}\": expected KEY=VALUE, such as tp=8", flag, word));
    }
    if (equals != std::string::npos) {
      const std::string key = word.substr(0, equals);
      RequireKey(key, flag);
      for (const Narrowing& each : narrowings) {
        if (each.key == key) throw UsageError(fmt::format("{}: {} is given twice", flag, key));
      }
      narrowings.push_back({.key = key, .forbidden = forbidden, .values = {}});
    }
    Narrowing& last = narrowings.back();
    const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
    last.values.push_back(Canonical(last.key, value, flag));
  }
  return narrowings;
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

Narrowing NarrowingFromJson(const nlohmann::json& json, const std::string& where) {
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
  try {
    RequireKey(narrowing.key, object.Where("key"));
    for (const nlohmann::json& value : *values) {
      if (!value.is_string()) object.Refuse(list, "texts");
      narrowing.values.push_back(
          Canonical(narrowing.key, value.get<std::string>(), object.Where(list) + ":"));
    }
  } catch (const UsageError& error) {
    throw InputError(error.what());  // the same words, but it is a file that is wrong
  }
  return narrowing;
}

}  // namespace trimtab

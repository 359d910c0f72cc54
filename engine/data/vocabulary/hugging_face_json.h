// How the parts of a tokenizer.json are read.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/vocabulary/pattern.h"

namespace trimtab {

[[noreturn]] inline void RefuseJson(const std::string& where, const std::string& expected,
                                    const nlohmann::json& value) {
  throw InputError(fmt::format("{}: expected {}, got {}", where, expected, DescribeJson(value)));
}

/// The `type` of a component, which the object says first.
inline std::string TypeOf(const nlohmann::json& component, const std::string& where) {
  if (!component.is_object() || !component.contains("type") || !component["type"].is_string()) {
    RefuseJson(where, "an object with a 'type'", component);
  }
  return component["type"].get<std::string>();
}

/// The list under `key` of a "Sequence", with the path of each element.
template <typename Visit>
void ForEachOf(const nlohmann::json& sequence, const std::string& where, const std::string& key,
               const Visit& visit) {
  StrictObject object(sequence, where);
  std::string type;
  object.Text("type", type, Need::kRequired);
  const nlohmann::json* list = object.Find(key, Need::kRequired);
  object.Finish();
  if (!list->is_array()) object.Refuse(key, "a list");
  for (size_t i = 0; i < list->size(); ++i) {
    visit((*list)[i], fmt::format("{}[{}]", object.Where(key), i));
  }
}

/// Reads a `pattern`: {"Regex": ".."} or {"String": ".."}.
inline Pattern ReadPattern(const nlohmann::json& pattern, const std::string& where) {
  StrictObject choice(pattern, where);
  std::string regex;
  std::string literal;
  choice.Text("Regex", regex);
  choice.Text("String", literal);
  choice.Finish();
  if (regex.empty() == literal.empty()) {
    RefuseJson(where, "either a \"Regex\" or a \"String\"", pattern);
  }
  return {regex.empty() ? PatternOfText(literal) : regex,
          choice.Where(regex.empty() ? "String" : "Regex")};
}

}  // namespace trimtab

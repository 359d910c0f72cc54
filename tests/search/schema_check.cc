#include "tests/search/schema_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace trimtab {
namespace {

using nlohmann::json;

bool HasType(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

std::string Check(const json& root, const json& schema, const json& value, const std::string& path);

std::string CheckObject(const json& root, const json& schema, const json& value,
                        const std::string& path) {
  for (const json& name : schema.value("required", json::array())) {
    if (!value.contains(name)) return path + ": lacks " + name.get<std::string>();
  }
  const json known = schema.value("properties", json::object());
  const json others = schema.value("additionalProperties", json(true));
  for (const auto& [name, member] : value.items()) {
    const std::string member_path = path + "." + name;
    if (!known.contains(name) && others == false) return member_path + ": not in the schema";
    const json& rule = known.contains(name) ? known.at(name) : others;
    if (!rule.is_object()) continue;
    if (std::string breach = Check(root, rule, member, member_path); !breach.empty()) return breach;
  }
  return "";
}

std::string Check(const json& root, const json& schema, const json& value,
                  const std::string& path) {
  static const std::set<std::string> kKeywords = {"$schema",     "title",
                                                  "description", "type",
                                                  "const",       "enum",
                                                  "properties",  "$defs",
                                                  "required",    "items",
                                                  "minItems",    "minimum",
                                                  "maximum",     "additionalProperties",
                                                  "$ref",        "oneOf"};
  for (const auto& [keyword, rule] : schema.items()) {
    if (!kKeywords.contains(keyword)) return path + ": the schema uses " + keyword;
  }
  if (schema.contains("$ref")) {
    const std::string place = schema.at("$ref").get<std::string>().substr(1);
    return Check(root, root.at(json::json_pointer(place)), value, path);
  }
  if (schema.contains("oneOf")) {
    std::string breaches;
    int matching = 0;
    for (const json& each : schema["oneOf"]) {
      const std::string breach = Check(root, each, value, path);
      if (breach.empty()) ++matching;
      breaches += breach + "; ";
    }
    return matching == 1 ? "" : path + ": matches " + std::to_string(matching) + ": " + breaches;
  }
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](const json& type) { return HasType(value, type); })) {
      return path + ": is " + value.dump() + ", not of type " + types.dump();
    }
  }
  if (schema.contains("const") && value != schema["const"]) return path + ": is " + value.dump();
  if (schema.contains("enum")) {
    const json& allowed = schema["enum"];
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      return path + ": is " + value.dump();
    }
  }
  if (value.is_number()) {
    if (schema.contains("minimum") && value < schema["minimum"]) return path + ": too small";
    if (schema.contains("maximum") && value > schema["maximum"]) return path + ": too large";
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0})) return path + ": too short";
    for (size_t i = 0; i < value.size() && schema.contains("items"); ++i) {
      std::string breach =
          Check(root, schema["items"], value[i], path + "[" + std::to_string(i) + "]");
      if (!breach.empty()) return breach;
    }
  }
  return value.is_object() ? CheckObject(root, schema, value, path) : "";
}

}  // namespace

std::string SchemaBreach(const json& schema, const json& value) {
  return Check(schema, schema, value, "$");
}

}  // namespace trimtab

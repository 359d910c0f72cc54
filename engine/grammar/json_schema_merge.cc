#include "engine/grammar/json_schema_merge.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBranches = 256;

Json Both(const Json& a, const Json& b) { return {{"allOf", Json::array({a, b})}}; }

Json Types(const Json& schema) {
  const Json& type = schema.at("type");
  return type.is_array() ? type : Json::array({type});
}

bool Has(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Json CommonTypes(const Json& a, const Json& b) {
  Json common = Json::array();
  for (const Json& type : a) {
    if (Has(b, type) || (type == "integer" && Has(b, "number"))) common.push_back(type);
  }
  if (Has(b, "integer") && Has(a, "number") && !Has(common, "integer")) common.push_back("integer");
  return common;
}

/// `const` as `enum`, so that there is one of the two.
Json WithoutConst(Json schema) {
  if (!schema.contains("const") || schema.contains("enum")) return schema;
  schema["enum"] = Json::array({schema["const"]});
  schema.erase("const");
  return schema;
}

/// `schema` where its properties are all that `names` has too: those that it does not list are
/// what it says of additional ones.
void ListProperties(Json& schema, const Json& names) {
  if (!schema.contains("additionalProperties")) return;
  const Json additional = schema["additionalProperties"];
  for (const auto& [name, unused] : names.items()) {
    if (!schema.contains("properties")) schema["properties"] = Json::object();
    if (!schema["properties"].contains(name)) schema["properties"][name] = additional;
  }
}

void MergeKeyword(const std::string& keyword, const Json& value, Json& into,
                  const std::string& path) {
  static constexpr std::array<std::string_view, 5> kLow = {
      "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
  static constexpr std::array<std::string_view, 5> kHigh = {
      "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
  Json& own = into[keyword];
  if (own == value) return;
  if (keyword == "enum") {
    Json common = Json::array();
    for (const Json& each : own) {
      if (Has(value, each)) common.push_back(each);
    }
    own = common;
  } else if (keyword == "required") {
    for (const Json& each : value) {
      if (!Has(own, each)) own.push_back(each);
    }
  } else if (keyword == "properties") {
    for (const auto& [name, schema] : value.items()) {
      own[name] = own.contains(name) ? Both(own[name], schema) : schema;
    }
  } else if (keyword == "items" || keyword == "additionalProperties") {
    own = Both(own, value);
  } else if (keyword == "anyOf" || keyword == "oneOf") {
    Json branches = Json::array();
    for (const Json& a : own) {
      for (const Json& b : value) branches.push_back(Both(a, b));
    }
    if (branches.size() > kMostBranches) {
      throw InputError(fmt::format("{}.{}: {} combinations; expected at most {}", path, keyword,
                                   branches.size(), kMostBranches));
    }
    own = branches;
  } else if (Has(kLow, keyword) && own.is_number() && value.is_number()) {
    own = std::max(own, value);
  } else if (Has(kHigh, keyword) && own.is_number() && value.is_number()) {
    own = std::min(own, value);
  } else {
    throw InputError(fmt::format("{}.{}: two different values that must both hold; expected one",
                                 path, keyword));
  }
}

}  // namespace

bool IsAnnotation(const std::string& keyword) {
  static constexpr std::array<std::string_view, 23> kAnnotations = {"title",
                                                                    "description",
                                                                    "default",
                                                                    "examples",
                                                                    "example",
                                                                    "$schema",
                                                                    "$id",
                                                                    "id",
                                                                    "$comment",
                                                                    "$anchor",
                                                                    "deprecated",
                                                                    "readOnly",
                                                                    "writeOnly",
                                                                    "$vocabulary",
                                                                    "contentEncoding",
                                                                    "$defs",
                                                                    "definitions",
                                                                    "discriminator",
                                                                    "contentMediaType",
                                                                    "contentSchema",
                                                                    "markdownDescription",
                                                                    "enumDescriptions",
                                                                    "externalDocs"};
  return keyword.starts_with("x-") ||
         std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

Json MergeSchemas(const Json& a, const Json& b, const std::string& path) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  Json merged = WithoutConst(a);
  Json other = WithoutConst(b);
  for (const auto* side : {&merged, &other}) {
    const Json& second = side == &merged ? other : merged;
    if (side->contains("patternProperties") &&
        (second.contains("properties") || second.contains("additionalProperties"))) {
      throw InputError(fmt::format(
          "{}: 'patternProperties' beside the properties of another schema is not supported",
          path));
    }
  }
  if (merged.contains("properties") || other.contains("properties")) {
    const Json own = merged.value("properties", Json::object());
    ListProperties(merged, other.value("properties", Json::object()));
    ListProperties(other, own);
  }
  for (const auto& [keyword, value] : other.items()) {
    if (!merged.contains(keyword)) {
      merged[keyword] = value;
    } else if (keyword == "type") {
      const Json common = CommonTypes(Types(merged), Types(other));
      if (common.empty()) return false;
      merged["type"] = common;
    } else if (!IsAnnotation(keyword)) {
      MergeKeyword(keyword, value, merged, path);
    }
  }
  return merged;
}

}  // namespace trimtab

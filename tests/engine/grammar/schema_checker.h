// Checks whether a JSON value fits a JSON schema: plain recursion, for tests of what makes such
// values.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace trimtab {

/// In nothing else than the keywords that tests use; those it meets and does not know fail.
class SchemaChecker {
 public:
  using Json = nlohmann::ordered_json;

  explicit SchemaChecker(const Json& root) : root_(root) {}

  bool Fits(const Json& value) const { return Fits(value, root_); }

 private:
  static bool IsType(const Json& value, const std::string& type) {
    if (type == "integer") {
      return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
    }
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "boolean") return value.is_boolean();
    return value.is_null();
  }

  static size_t Characters(const std::string& text) {
    size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    return count;
  }

  bool Any(const Json& value, const Json& branches) const {
    for (const Json& each : branches) {
      if (Fits(value, each)) return true;
    }
    return false;
  }

  bool Fits(const Json& value, const Json& schema) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, what] : schema.items()) {
      if (!FitsKeyword(value, schema, keyword, what)) return false;
    }
    return true;
  }

  bool FitsKeyword(const Json& value, const Json& schema, const std::string& keyword,
                   const Json& what) const {
    if (keyword == "$defs" || keyword == "title") return true;
    if (keyword == "$ref") {
      return Fits(value, root_.at(Json::json_pointer(what.get<std::string>().substr(1))));
    }
    if (keyword == "type") {
      if (what.is_string()) return IsType(value, what);
      for (const Json& each : what) {
        if (IsType(value, each)) return true;
      }
      return false;
    }
    if (keyword == "enum") return std::find(what.begin(), what.end(), value) != what.end();
    if (keyword == "const") return value == what;
    if (keyword == "anyOf" || keyword == "oneOf") return Any(value, what);
    if (keyword == "allOf") {
      for (const Json& each : what) {
        if (!Fits(value, each)) return false;
      }
      return true;
    }
    if (value.is_number()) {
      const double number = value.get<double>();
      if (keyword == "minimum") return number >= what.get<double>();
      if (keyword == "maximum") return number <= what.get<double>();
      if (keyword == "exclusiveMinimum") return number > what.get<double>();
      if (keyword == "exclusiveMaximum") return number < what.get<double>();
    }
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (keyword == "minLength") return Characters(text) >= what.get<size_t>();
      if (keyword == "maxLength") return Characters(text) <= what.get<size_t>();
      if (keyword == "pattern") return std::regex_search(text, std::regex(what.get<std::string>()));
    }
    if (value.is_array()) return FitsArray(value, schema, keyword, what);
    if (value.is_object()) return FitsObject(value, schema, keyword, what);
    return true;
  }

  bool FitsArray(const Json& value, const Json& schema, const std::string& keyword,
                 const Json& what) const {
    if (keyword == "minItems") return value.size() >= what.get<size_t>();
    if (keyword == "maxItems") return value.size() <= what.get<size_t>();
    const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (keyword == "prefixItems" && i < first && !Fits(value[i], what[i])) return false;
      if (keyword == "items" && i >= first && !Fits(value[i], what)) return false;
    }
    return true;
  }

  bool FitsObject(const Json& value, const Json& schema, const std::string& keyword,
                  const Json& what) const {
    if (keyword == "minProperties") return value.size() >= what.get<size_t>();
    if (keyword == "maxProperties") return value.size() <= what.get<size_t>();
    if (keyword == "required") {
      for (const Json& each : what) {
        if (!value.contains(each.get<std::string>())) return false;
      }
      return true;
    }
    for (const auto& [name, member] : value.items()) {
      const bool listed = schema.contains("properties") && schema["properties"].contains(name);
      if (keyword == "properties" && listed && !Fits(member, what[name])) return false;
      bool matched = false;
      if (schema.contains("patternProperties")) {
        for (const auto& [pattern, own] : schema["patternProperties"].items()) {
          if (!std::regex_search(name, std::regex(pattern))) continue;
          matched = true;
          if (keyword == "patternProperties" && !Fits(member, own)) return false;
        }
      }
      if (keyword == "additionalProperties" && !listed && !matched && !Fits(member, what)) {
        return false;
      }
    }
    return true;
  }

  const Json& root_;
};

}  // namespace trimtab

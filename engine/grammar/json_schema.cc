// JSON schemas (draft 2020-12 and the names of earlier ones) as grammars.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/grammar/front_ends.h"
#include "engine/grammar/json_schema_merge.h"
#include "engine/grammar/json_schema_scalars.h"
#include "engine/grammar/json_text.h"

namespace trimtab {
namespace {

using Json = nlohmann::ordered_json;
using Expr = Grammar::Expr;

constexpr size_t kMostSchemaBytes = size_t{1} << 20;
constexpr int kMostSchemaDepth = 128;
constexpr int kMostSchemas = 50'000;

constexpr std::array<std::string_view, 6> kTypes = {"object", "array",   "string",
                                                    "number", "boolean", "null"};

struct Keyword {
  std::string_view name;
  std::string_view type;  // of the values that it is about; empty: of all
};
constexpr Keyword kKeywords[] = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"$ref", ""},
};

bool SaysAnything(const Json& schema) {
  return std::ranges::any_of(schema.items(),
                             [](const auto& each) { return !IsAnnotation(each.key()); });
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, Grammar& grammar)
      : root_(root), grammar_(grammar), json_(grammar) {}

  Expr Root() { return grammar_.Sequence({json_.Space(), Compile(root_, "$")}); }

 private:
  Expr Compile(const Json& schema, const std::string& path) {
    if (++schemas_ > kMostSchemas)
      FailSchema(path, fmt::format("more than {} schemas", kMostSchemas));
    if (++depth_ > kMostSchemaDepth) {
      FailSchema(path, fmt::format("schemas nested deeper than {}", kMostSchemaDepth));
    }
    const Expr made = CompileAny(schema, path);
    --depth_;
    return made;
  }

  Expr CompileAny(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) return schema.get<bool>() ? json_.Value() : grammar_.Never();
    if (!schema.is_object()) FailSchema(path, "expected a schema: an object, true or false");
    CheckKeywords(schema, path);
    if (schema.contains("$ref") || schema.contains("allOf")) return CompileJoined(schema, path);
    for (const std::string keyword : {"anyOf", "oneOf"}) {
      if (schema.contains(keyword)) return CompileBranches(schema, keyword, path);
    }
    if (schema.contains("enum") || schema.contains("const")) return CompileValues(schema, path);
    std::vector<Expr> branches;
    for (const std::string& type : TypesOf(schema, path)) {
      branches.push_back(CompileType(type, schema, path));
    }
    return grammar_.Choice(std::move(branches));
  }

  static void CheckKeywords(const Json& schema, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      const bool known = std::ranges::any_of(
          kKeywords, [&name = name](const Keyword& each) { return each.name == name; });
      if (known || IsAnnotation(name)) continue;
      FailSchema(path + "." + name, "this keyword is not supported");
    }
  }

  /// The schema that a `$ref` of this document names.
  const Json& Referenced(const Json& ref, const std::string& path) const {
    if (!ref.is_string()) FailSchema(path + ".$ref", "expected a string");
    const auto& text = ref.get_ref<const std::string&>();
    if (text != "#" && !text.starts_with("#/")) {
      FailSchema(path + ".$ref",
                 fmt::format("'{}'; expected a part of this schema: '#/$defs/...'", text));
    }
    try {
      return root_.at(Json::json_pointer(text.substr(1)));
    } catch (const Json::exception&) {
      FailSchema(path + ".$ref", fmt::format("'{}' is not in the schema", text));
    }
  }

  Expr CompileJoined(const Json& schema, const std::string& path) {
    Json rest = schema;
    rest.erase("$ref");
    rest.erase("allOf");
    if (!schema.contains("allOf") && !SaysAnything(rest)) {
      const Json& target = Referenced(schema["$ref"], path);
      const auto& name = schema["$ref"].get_ref<const std::string&>();
      const auto [found, added] = references_.try_emplace(name);
      if (added) {
        found->second = grammar_.AddRule();
        const Grammar::Rule rule = found->second;
        grammar_.SetBody(rule, Compile(target, "$" + PathOf(name)));
        return grammar_.Call(rule);
      }
      return grammar_.Call(found->second);
    }
    return Compile(Flattened(schema, path), path);
  }

  /// "#/$defs/a" as ".$defs.a".
  static std::string PathOf(const std::string& reference) {
    std::string path = reference.substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    return path;
  }

  /// Without `$ref` and `allOf`: what they say is merged into the rest.
  Json Flattened(const Json& schema, const std::string& path) {
    if (!schema.is_object()) return schema;
    if (++flattened_ > kMostSchemas || flattening_ > kMostSchemaDepth) {
      FailSchema(path,
                 "schemas of 'allOf' and '$ref' are nested too deeply, or contain themselves");
    }
    CheckKeywords(schema, path);
    ++flattening_;
    Json merged = schema;
    merged.erase("$ref");
    merged.erase("allOf");
    if (schema.contains("$ref")) {
      merged = MergeSchemas(merged, Flattened(Referenced(schema["$ref"], path), path), path);
    }
    if (schema.contains("allOf")) {
      size_t i = 0;
      for (const Json& each : List(schema, "allOf", path)) {
        const std::string inner = fmt::format("{}.allOf[{}]", path, i++);
        merged = MergeSchemas(merged, Flattened(each, inner), inner);
      }
    }
    --flattening_;
    return merged;
  }

  static const Json& List(const Json& schema, const std::string& keyword, const std::string& path) {
    const Json& list = schema.at(keyword);
    if (!list.is_array() || list.empty())
      FailSchema(path + "." + keyword, "expected a list of at least one");
    return list;
  }

  Expr CompileBranches(const Json& schema, const std::string& keyword, const std::string& path) {
    Json rest = schema;
    rest.erase(keyword);
    const bool alone = !SaysAnything(rest);
    std::vector<Expr> branches;
    size_t i = 0;
    for (const Json& branch : List(schema, keyword, path)) {
      const std::string inner = fmt::format("{}.{}[{}]", path, keyword, i++);
      branches.push_back(
          Compile(alone ? branch : MergeSchemas(rest, Flattened(branch, inner), inner), inner));
    }
    return grammar_.Choice(std::move(branches));
  }

  static bool IsOfType(const Json& value, std::string_view type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    return value.is_null();
  }

  Expr CompileValues(const Json& schema, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      if (name == "enum" || name == "const" || name == "type" || IsAnnotation(name)) continue;
      FailSchema(path + "." + name, "not supported beside 'enum' or 'const'");
    }
    std::vector<Json> values;
    if (schema.contains("enum")) {
      const Json& list = List(schema, "enum", path);
      values.assign(list.begin(), list.end());
    } else {
      values.push_back(schema["const"]);
    }
    if (schema.contains("enum") && schema.contains("const")) {
      std::erase_if(values, [&](const Json& each) { return each != schema["const"]; });
    }
    if (schema.contains("type")) {
      const std::vector<std::string> types = TypesOf(schema, path);
      std::erase_if(values, [&](const Json& each) {
        return std::ranges::none_of(types, [&](const auto& type) { return IsOfType(each, type); });
      });
    }
    std::vector<Expr> branches;
    std::vector<std::string> simple;
    for (const Json& each : values) {
      if (each.is_string()) {
        simple.push_back("\"" + EscapedContent(each.get_ref<const std::string&>()) + "\"");
      } else if (each.is_structured()) {
        branches.push_back(json_.Literal(each));
      } else {
        simple.push_back(each.dump());
      }
    }
    if (!simple.empty()) branches.push_back(grammar_.Strings(std::move(simple)));
    return grammar_.Choice(std::move(branches));
  }

  /// The types that `type` names; without it, those that the keywords are about, or all.
  static std::vector<std::string> TypesOf(const Json& schema, const std::string& path) {
    std::vector<std::string> types;
    const auto add = [&](const Json& type) {
      const bool known = type.is_string() &&
                         (type == "integer" ||
                          std::ranges::any_of(kTypes, [&](auto each) { return type == each; }));
      if (!known) {
        FailSchema(path + ".type",
                   fmt::format("{}; expected object, array, string, number, integer, "
                               "boolean, null or a list of them",
                               type.dump()));
      }
      types.push_back(type.get<std::string>());
    };
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      if (!type.is_array()) {
        add(type);
      } else {
        for (const Json& each : List(schema, "type", path)) add(each);
      }
      return types;
    }
    for (const std::string_view type : kTypes) {
      const bool named = std::ranges::any_of(kKeywords, [&](const Keyword& each) {
        return each.type == type && schema.contains(std::string(each.name));
      });
      if (named) types.emplace_back(type);
    }
    if (types.empty()) types.assign(kTypes.begin(), kTypes.end());
    return types;
  }

  Expr CompileType(const std::string& type, const Json& schema, const std::string& path) {
    if (type == "object") return grammar_.Shared(CompileObject(schema, path));
    if (type == "array") return grammar_.Shared(CompileArray(schema, path));
    if (type == "string") return StringSchemaExpr(schema, path, json_, grammar_);
    if (type == "number" || type == "integer")
      return NumberSchemaExpr(schema, path, type == "integer", json_, grammar_);
    return type == "boolean" ? json_.Boolean() : json_.Null();
  }

  // --- Arrays.

  Expr CompileArray(const Json& schema, const std::string& path) {
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false) {
      FailSchema(path + ".uniqueItems", "not supported");
    }
    const int64_t min = SchemaCount(schema, "minItems", path, 0);
    const int64_t max = SchemaCount(schema, "maxItems", path, Grammar::kUnbounded);
    if (min > max) return grammar_.Never();
    // Earlier drafts list the first items in `items`.
    const bool listed = schema.contains("items") && schema["items"].is_array();
    const std::string first_name = listed ? "items" : "prefixItems";
    const std::string rest_name = listed ? "additionalItems" : "items";
    std::vector<Expr> first;
    if (schema.contains(first_name)) {
      size_t i = 0;
      for (const Json& each : List(schema, first_name, path)) {
        const std::string inner = fmt::format("{}.{}[{}]", path, first_name, i++);
        first.push_back(grammar_.Shared(Compile(each, inner)));
      }
    }
    if (std::ssize(first) > max) first.resize(static_cast<size_t>(max));
    const Expr item = schema.contains(rest_name)
                          ? Compile(schema[rest_name], path + "." + rest_name)
                          : json_.Value();
    const auto listed_items = std::ssize(first);
    const int64_t least = std::max<int64_t>(0, min - listed_items);
    const int64_t most = max == Grammar::kUnbounded ? max : max - listed_items;
    try {
      if (first.empty()) return json_.Enclosed('[', json_.List(item, least, most), ']');
      // From the last one on: what follows each of the first items.
      Expr rest = grammar_.Repeat(json_.Next(grammar_.Shared(item)), least, most);
      for (int64_t i = listed_items; i-- > 0;) {
        const Expr own = first[static_cast<size_t>(i)];
        rest = grammar_.Sequence({i == 0 ? own : json_.Next(own), rest});
        if (i >= min) rest = grammar_.Optional(rest);
      }
      return json_.Enclosed('[', rest, ']');
    } catch (const InputError& error) {
      FailSchema(path, error.what());
    }
  }

  // --- Objects.

  struct Property {
    Expr member;
    bool required;
  };

  Expr Key(const std::string& name) { return grammar_.Bytes("\"" + EscapedContent(name) + "\""); }

  std::vector<Property> PropertiesOf(const Json& schema, const std::string& path,
                                     std::vector<std::string>& names) {
    std::vector<std::string> required;
    if (schema.contains("required")) {
      const Json& list = schema["required"];
      if (!list.is_array()) FailSchema(path + ".required", "expected a list of names");
      for (const Json& each : list) {
        if (!each.is_string()) FailSchema(path + ".required", "expected a list of names");
        required.push_back(each.get<std::string>());
      }
    }
    const auto is_required = [&](const std::string& name) {
      return std::ranges::find(required, name) != required.end();
    };
    std::vector<Property> properties;
    if (schema.contains("properties")) {
      const Json& list = schema["properties"];
      if (!list.is_object()) FailSchema(path + ".properties", "expected an object");
      for (const auto& [name, value] : list.items()) {
        names.push_back(name);
        const Expr own = Compile(value, path + ".properties." + name);
        properties.push_back({grammar_.Shared(json_.Member(Key(name), own)), is_required(name)});
      }
    }
    // Names that are required and not listed have values as additional ones do.
    for (const std::string& name : required) {
      if (std::ranges::find(names, name) != names.end()) continue;
      names.push_back(name);
      const Json additional = schema.value("additionalProperties", Json(true));
      const Expr value = Compile(additional, path + ".additionalProperties");
      properties.push_back({grammar_.Shared(json_.Member(Key(name), value)), true});
    }
    return properties;
  }

  /// A member that is not listed; nothing where there may be none.
  std::optional<Expr> OtherMember(const Json& schema, const std::string& path,
                                  const std::vector<std::string>& names) {
    if (schema.contains("patternProperties")) {
      const Json& patterns = schema["patternProperties"];
      if (!patterns.is_object() || patterns.size() != 1) {
        FailSchema(path + ".patternProperties", "expected an object with one pattern");
      }
      if (!names.empty() || schema.value("additionalProperties", Json(false)) != false) {
        FailSchema(path + ".patternProperties",
                   "not supported beside other properties, whether listed or additional");
      }
      const std::string pattern = patterns.begin().key();
      const Json& value = patterns.begin().value();
      const std::string inner = path + ".patternProperties." + pattern;
      return json_.Member(json_.Quoted(SchemaPatternExpr(pattern, inner, json_, grammar_)),
                          Compile(value, inner));
    }
    // Without a word on them: none beside those that are listed.
    const Json additional = schema.value("additionalProperties", Json(names.empty()));
    if (additional == false) return std::nullopt;
    const Expr value = Compile(additional, path + ".additionalProperties");
    const Expr key = names.empty() ? json_.String(0, Grammar::kUnbounded)
                                   : json_.Quoted(json_.TextOtherThan(names));
    return json_.Member(key, value);
  }

  Expr CompileObject(const Json& schema, const std::string& path) {
    std::vector<std::string> names;
    const std::vector<Property> properties = PropertiesOf(schema, path, names);
    const std::optional<Expr> other = OtherMember(schema, path, names);
    const int64_t required = std::ranges::count_if(properties, &Property::required);
    const int64_t listed = std::ssize(properties);
    int64_t min = SchemaCount(schema, "minProperties", path, 0);
    int64_t max = SchemaCount(schema, "maxProperties", path, Grammar::kUnbounded);
    const int64_t most = other ? Grammar::kUnbounded : listed;
    if (min > most || max < required) return grammar_.Never();
    if (required != listed && (min > required || (max != Grammar::kUnbounded && max < most))) {
      FailSchema(
          path, "'minProperties' and 'maxProperties' are not supported beside optional properties");
    }
    min = std::max<int64_t>(0, min - listed);
    if (max != Grammar::kUnbounded) max = std::max<int64_t>(0, max - listed);
    if (properties.empty()) {
      const Expr members = other ? json_.List(*other, min, max) : grammar_.Sequence({});
      return json_.Enclosed('{', members, '}');
    }
    // From the last one on: what may follow where members stand before it, and where none do. Each
    // is a rule, so that both can end in the same one.
    Expr after = grammar_.Sequence({});
    Expr first = grammar_.Sequence({});
    if (other) {
      const Expr shared = grammar_.Shared(*other);
      after = RuleOf(grammar_.Repeat(json_.Next(shared), min, max));
      first = grammar_.Optional(grammar_.Sequence({shared, after}));
    }
    for (int64_t i = listed; i-- > 0;) {
      const Property& each = properties[static_cast<size_t>(i)];
      const Expr begun = grammar_.Sequence({each.member, after});
      first = each.required ? begun : RuleOf(grammar_.Choice({begun, first}));
      const Expr next = json_.Next(each.member);
      after = RuleOf(grammar_.Sequence({each.required ? next : grammar_.Optional(next), after}));
    }
    return json_.Enclosed('{', first, '}');
  }

  Expr RuleOf(Expr body) {
    const Grammar::Rule rule = grammar_.AddRule();
    grammar_.SetBody(rule, body);
    return grammar_.Call(rule);
  }

  const Json& root_;
  Grammar& grammar_;
  JsonText json_;
  std::map<std::string, Grammar::Rule> references_;
  int schemas_ = 0;
  int depth_ = 0;
  int flattened_ = 0;
  int flattening_ = 0;
};

}  // namespace

Grammar::Expr JsonSchemaExpr(std::string_view text, Grammar& grammar) {
  if (text.size() > kMostSchemaBytes) {
    throw InputError(fmt::format("{} bytes; expected at most {}", text.size(), kMostSchemaBytes));
  }
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception&) {
    throw InputError("not JSON");
  }
  return SchemaCompiler(root, grammar).Root();
}

}  // namespace trimtab

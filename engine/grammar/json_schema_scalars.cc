#include "engine/grammar/json_schema_scalars.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/string_formats.h"

namespace trimtab {
namespace {

using Json = nlohmann::ordered_json;
using Expr = Grammar::Expr;

std::optional<NumberBound> Bound(const Json& schema, const std::string& name, bool low,
                                 const std::string& path) {
  const std::string exclusive_name = low ? "exclusiveMinimum" : "exclusiveMaximum";
  std::optional<NumberBound> bound;
  const auto parse = [&](const std::string& keyword) {
    if (!schema[keyword].is_number()) FailSchema(path + "." + keyword, "expected a number");
    return Decimal::Parse(schema[keyword].dump());
  };
  if (schema.contains(name)) bound = NumberBound{parse(name), false};
  if (!schema.contains(exclusive_name)) return bound;
  if (schema[exclusive_name].is_boolean()) {  // draft 4
    if (bound) bound->exclusive = schema[exclusive_name].get<bool>();
    return bound;
  }
  const NumberBound exclusive = {parse(exclusive_name), true};
  if (!bound) return exclusive;
  const double a = schema[name].get<double>();
  const double b = schema[exclusive_name].get<double>();
  return (low ? b >= a : b <= a) ? exclusive : *bound;
}

Expr Matching(const std::string& pattern, bool anywhere, JsonText& json, Grammar& grammar) {
  const RegexOptions options = {
      .encode = [&json](const CodePoints& points) { return json.Character(points); },
      .anywhere = anywhere};
  return RegexExpr(pattern, options, grammar);
}

}  // namespace

void FailSchema(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{}: {}", path, what));
}

int64_t SchemaCount(const Json& schema, const std::string& keyword, const std::string& path,
                    int64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number > 1e9 || number != static_cast<double>(static_cast<int64_t>(number))) {
    FailSchema(path + "." + keyword, "expected a whole number from 0 to 1e9");
  }
  return static_cast<int64_t>(number);
}

Expr NumberSchemaExpr(const Json& schema, const std::string& path, bool integer, JsonText& json,
                      Grammar& grammar) {
  const auto low = Bound(schema, "minimum", true, path);
  const auto high = Bound(schema, "maximum", false, path);
  if (low || high) return NumberRangeExpr(low, high, integer, grammar);
  return integer ? json.Integer() : json.Number();
}

Expr SchemaPatternExpr(const Json& pattern, const std::string& path, JsonText& json,
                       Grammar& grammar) {
  if (!pattern.is_string()) FailSchema(path, "expected a string");
  try {
    return Matching(pattern.get<std::string>(), /*anywhere=*/true, json, grammar);
  } catch (const InputError& error) {
    FailSchema(path, error.what());
  }
}

Expr StringSchemaExpr(const Json& schema, const std::string& path, JsonText& json,
                      Grammar& grammar) {
  const int64_t min = SchemaCount(schema, "minLength", path, 0);
  const int64_t max = SchemaCount(schema, "maxLength", path, Grammar::kUnbounded);
  if (min > max) return grammar.Never();
  std::vector<Expr> conditions;
  if (schema.contains("pattern")) {
    conditions.push_back(SchemaPatternExpr(schema["pattern"], path + ".pattern", json, grammar));
  }
  if (schema.contains("format")) {
    const Json& format = schema["format"];
    if (!format.is_string()) FailSchema(path + ".format", "expected a string");
    const auto pattern = FormatPattern(format.get_ref<const std::string&>());
    if (!pattern) {
      FailSchema(path + ".format", fmt::format("'{}' is not supported; expected one of: {}",
                                               format.get<std::string>(), FormatNames()));
    }
    conditions.push_back(Matching(*pattern, /*anywhere=*/false, json, grammar));
  }
  try {
    if (conditions.empty()) return json.String(min, max);
    if (min > 0 || max != Grammar::kUnbounded) {
      conditions.push_back(grammar.Repeat(json.Character(CodePoints::All()), min, max));
    }
    Expr content = conditions.front();
    for (size_t i = 1; i < conditions.size(); ++i) {
      content = grammar.Intersection(content, conditions[i]);
    }
    return json.Quoted(content);
  } catch (const InputError& error) {
    FailSchema(path, error.what());
  }
}

}  // namespace trimtab

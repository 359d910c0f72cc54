// The parts of JSON schemas that contain no schemas: numbers and strings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/grammar/grammar.h"
#include "engine/grammar/json_text.h"

namespace trimtab {

/// Throws InputError: "`path`: `what`".
[[noreturn]] void FailSchema(const std::string& path, const std::string& what);

/// The whole number of `keyword`; `otherwise` if it is not there.
int64_t SchemaCount(const nlohmann::ordered_json& schema, const std::string& keyword,
                    const std::string& path, int64_t otherwise);

/// Numbers that `schema` bounds.
Grammar::Expr NumberSchemaExpr(const nlohmann::ordered_json& schema, const std::string& path,
                               bool integer, JsonText& json, Grammar& grammar);

/// Strings of the length, pattern and format that `schema` has.
Grammar::Expr StringSchemaExpr(const nlohmann::ordered_json& schema, const std::string& path,
                               JsonText& json, Grammar& grammar);

/// The content of strings in which `pattern`, a JSON string, matches anywhere.
Grammar::Expr SchemaPatternExpr(const nlohmann::ordered_json& pattern, const std::string& path,
                                JsonText& json, Grammar& grammar);

}  // namespace trimtab

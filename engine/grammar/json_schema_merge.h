// Two JSON schemas as one that both must hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// The schema of values that fit `a` and `b`, neither of which has `$ref` or `allOf`. `path` is the
/// JSON path of what they come from. Throws InputError that names keywords that cannot be joined.
nlohmann::ordered_json MergeSchemas(const nlohmann::ordered_json& a,
                                    const nlohmann::ordered_json& b, const std::string& path);

/// Returns true if the keyword is an annotation: it does not restrict values.
bool IsAnnotation(const std::string& keyword);

}  // namespace trimtab

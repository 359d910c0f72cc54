// A validator for the part of JSON Schema that the schemas of this project use.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// The first breach of `schema` by `value`, as "$.path: what"; empty when there is none. Knows
/// type, const, enum, properties, required, additionalProperties, items, minItems, minimum, maximum
/// and $ref into $defs; any other keyword is a breach, so that none is silently ignored.
std::string SchemaBreach(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace trimtab

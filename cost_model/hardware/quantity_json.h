// Numbers with their provenance as JSON, wherever they stand.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"

namespace trimtab {

/// Names of the origins, in the order of the enumerators.
const std::vector<std::string>& OriginNames();
/// The origin called `name`, which is one of them.
Origin ParseOrigin(const std::string& name);

/// {"value", "origin", "source"}. `where` prefixes error messages. Throws InputError.
Quantity QuantityFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const Quantity& quantity);

/// A list of strings. Throws InputError naming `where`.
std::vector<std::string> StringsFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab

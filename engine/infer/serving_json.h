// Configurations of serving as JSON: `recommended.serving` of a search, and what `trimtab serve
// --config` takes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/infer/serving_config.h"

namespace trimtab {

/// Strict JSON; what is left out has its default, but for the model. Throws InputError.
ServingConfig ServingConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const ServingConfig& config);

/// Reads such a file, or the report of a search for serving (takes $.recommended.serving). Throws
/// InputError.
ServingConfig LoadServingConfig(const std::string& path);

/// Names of --weights, in the order of WeightFormat.
const std::vector<std::string>& WeightNames();
WeightFormat WeightFormatOf(const std::string& name);
/// What caches hold, by name: "fp32", "bf16", "fp16", "fp8", "int8".
const std::vector<std::string>& CacheNames();
DType CacheType(const std::string& name);
std::string CacheName(DType entries);

}  // namespace trimtab

// Keys of a config.json that no reader of a model type asks for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/config/model/model_config.h"

namespace trimtab {

/// Returns true if no value of the key changes what the model computes here: what it says of
/// another head, of generation, of the file, of memory or speed, or of the noise and dropout that
/// the engine trains without.
bool IsHarmlessKey(std::string_view key);

/// Returns the value of the key under which a model does what the engine does for `model`; nullopt
/// for a key that is not known.
std::optional<nlohmann::json> EngineValue(std::string_view key, const ModelConfig& model);

}  // namespace trimtab

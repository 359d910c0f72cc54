// A model's shape from and to a Hugging Face config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/model/model_config.h"

namespace trimtab {

/// True if the JSON looks like a Hugging Face config.json rather than our own model JSON.
bool IsHuggingFaceConfig(const nlohmann::json& json);

/// Returns the model a config.json describes, of any type in registry.h, in the forms of
/// Transformers 4 and 5. A missing key is the default of the type's class. Keys that change no
/// result are passed over (keys/other_keys.h; dropout among them: the engine trains without), and
/// named in `notes`, lines for the log. Throws InputError for other model types, for features the
/// engine does not have, and for keys that are not known and may change results.
ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where,
                                       std::vector<std::string>* notes = nullptr);

/// Returns the config.json of a model, which reads back as the same but for its name and the
/// padding of its vocabulary. Throws InputError when no model type in registry.h describes it.
nlohmann::json ToHuggingFace(const ModelConfig& model);

}  // namespace trimtab

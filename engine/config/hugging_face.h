// A model's shape from and to a Hugging Face config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/config/model_config.h"

namespace trimtab {

/// True if the JSON looks like a Hugging Face config.json rather than our own model JSON.
bool IsHuggingFaceConfig(const nlohmann::json& json);

/// The model a config.json describes, of any model type in hugging_face.cc, in the forms of
/// Transformers 4 and 5. Unlike our own files, keys we do not know are passed over: these files
/// carry dozens that say nothing about the shape (dropout among them: the engine trains without).
/// Throws InputError for other model types and for features the engine does not have.
ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where);

/// The config.json of a model, which reads back as the same but for its name and the padding of its
/// vocabulary. Throws InputError when no model type that we know describes it.
nlohmann::json ToHuggingFace(const ModelConfig& model);

}  // namespace trimtab

// Models by the name of a preset or the path of a file, and runs that name one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// Names of the built-in models, in the order `trimtab models` lists them.
std::vector<std::string> ModelPresetNames();

/// Returns a preset by name, or the model of a file: our own model JSON or a Hugging Face
/// config.json. Throws UsageError (unknown preset, with the nearest name) or InputError (file, JSON
/// path).
ModelConfig LoadModelConfig(const std::string& preset_or_path);

/// Reads a run whose `model` is an object or the name of a preset. See RunConfigFromJson in
/// engine/config/run/run_config.h.
RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where);

/// Reads RUN.json, or a search REPORT.json (takes $.recommended.run). Throws InputError.
RunConfig LoadRunConfig(const std::string& path);

}  // namespace trimtab

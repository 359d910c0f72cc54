// What all versions of Qwen share, dense and with experts.
#pragma once

#include "engine/families/family.h"

namespace trimtab {

/// Reads activation, rotary positions and windows, which are in all layers or in none.
void ReadQwen(ConfigFile& file, ModelConfig& model);
/// Reads what the versions with experts call alike.
void ReadQwenExperts(ConfigFile& file, ModelConfig& model);

nlohmann::json WriteQwen(const ModelConfig& model, const char* architecture);
void WriteQwenExperts(const ModelConfig& model, nlohmann::json& config);

}  // namespace trimtab

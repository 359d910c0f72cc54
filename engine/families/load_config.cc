#include "engine/families/load_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/families/hugging_face.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

const ModelConfig* FindPreset(const std::string& name) {
  for (const PresetGroup& group : PresetGroups()) {
    for (const ModelConfig& preset : group.models) {
      if (preset.name == name) return &preset;
    }
  }
  return nullptr;
}

/// Returns the name of a model whose file does not say it: that of its folder if the file is the
/// folder's config.json, else the file's path.
std::string NameOfFile(const std::string& path) {
  const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
  const std::string folder = file.parent_path().filename().string();
  return file.filename() == "config.json" && !folder.empty() ? folder : path;
}

ModelConfig LoadModelFile(std::string path) {
  if (std::filesystem::is_directory(path)) path += "/config.json";
  const nlohmann::json json = ReadJsonFile(path);
  const std::string where = path + ": $";
  std::vector<std::string> notes;
  ModelConfig model = IsHuggingFaceConfig(json) ? ModelConfigFromHuggingFace(json, where, &notes)
                                                : ModelConfigFromJson(json, where);
  for (const std::string& note : notes) LogInfo("{}: {}", path, note);
  if (model.name.empty()) model.name = NameOfFile(path);
  return model;
}

/// Reads the model of a run: an object, or the name of a preset.
ModelConfig RunModelFromJson(const nlohmann::json& json, const std::string& where) {
  if (!json.is_string()) return ModelConfigFromJson(json, where);
  const std::string name = json.get<std::string>();
  if (const ModelConfig* preset = FindPreset(name)) return *preset;
  throw InputError(fmt::format("{}: expected an object or the name of a preset, got {}{}", where,
                               DescribeJson(json), SuggestName(name, ModelPresetNames())));
}

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const PresetGroup& group : PresetGroups()) {
    for (const ModelConfig& preset : group.models) names.push_back(preset.name);
  }
  return names;
}

ModelConfig LoadModelConfig(const std::string& preset_or_path) {
  if (const ModelConfig* preset = FindPreset(preset_or_path)) return *preset;
  std::error_code ignored;
  const bool is_path = preset_or_path.find('/') != std::string::npos ||
                       preset_or_path.ends_with(".json") ||
                       std::filesystem::exists(preset_or_path, ignored);
  if (is_path) return LoadModelFile(preset_or_path);
  throw UsageError(fmt::format("model '{}' is neither a preset nor a file{}", preset_or_path,
                               SuggestName(preset_or_path, ModelPresetNames())));
}

RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where) {
  return RunConfigFromJson(json, where, RunModelFromJson);
}

RunConfig LoadRunConfig(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  const std::string where = path + ": $";
  if (!json.is_object() || !json.contains("recommended")) return RunConfigFromJson(json, where);
  // A report holds much besides the run; only the way to it is read here.
  StrictObject report(json, where);
  StrictObject recommended(*report.Find("recommended"), report.Where("recommended"));
  return RunConfigFromJson(*recommended.Find("run", Need::kRequired), recommended.Where("run"));
}

}  // namespace trimtab

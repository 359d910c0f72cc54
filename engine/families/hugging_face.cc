#include "engine/families/hugging_face.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/config/model/model_differences.h"
#include "engine/config/rules/rules.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

const Family& FamilyOf(ConfigFile& file) {
  if (const Family* family = FindFamily(file.type())) return *family;
  file.object().Refuse("model_type", "one of " + FamilyTypes());
}

/// Returns in what the model that a config.json describes differs from `model`; nullopt where its
/// type has no such models.
std::optional<std::vector<ModelDifference>> Differences(const nlohmann::json& config,
                                                        const ModelConfig& model) {
  try {
    return DifferencesOf(ModelConfigFromHuggingFace(config, model.name), model);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

bool IsHuggingFaceConfig(const nlohmann::json& json) {
  return json.is_object() && (json.contains("model_type") || json.contains("architectures"));
}

ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where,
                                       std::vector<std::string>* notes) {
  ConfigFile file(json, where);
  const Family& family = FamilyOf(file);
  ModelConfig model = family.defaults;
  file.Sizes(model);
  family.read(file, model);
  for (const RefusedKey& each : family.refused) {
    file.RequireNeutral(each.key, each.neutral, each.feature);
  }
  file.RequireSizes(model);
  file.LayerTypes(model);
  file.Finish(model);
  if (notes != nullptr) *notes = file.Notes();
  Simplify(model);
  RequireConsistent(model, where);
  return model;
}

nlohmann::json ToHuggingFace(const ModelConfig& model) {
  std::string nearest;
  std::vector<ModelDifference> fewest;
  for (const Family& family : Families()) {
    if (family.write == nullptr) continue;
    nlohmann::json config = family.write(model);
    config["model_type"] = family.types.front();
    config["vocab_size"] = model.vocab_size;
    config["initializer_range"] = model.init_std;
    config["tie_word_embeddings"] = model.tied_embeddings;
    const auto differences = Differences(config, model);
    if (!differences) continue;
    if (differences->empty()) return config;
    if (!nearest.empty() && differences->size() >= fewest.size()) continue;
    nearest = family.types.front();
    fewest = *differences;
  }
  std::string why;
  for (const ModelDifference& each : fewest) {
    why +=
        fmt::format("{} {} is {}, not {}", why.empty() ? "; in the nearest, " + nearest + "," : ",",
                    each.name, each.found, each.expected);
  }
  throw InputError(
      fmt::format("model '{}': no model type of Hugging Face that is known here describes it{}",
                  model.name, why));
}

}  // namespace trimtab

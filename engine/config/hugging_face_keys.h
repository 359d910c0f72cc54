// Keys of a Hugging Face config.json that many model types share, under all their names.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "engine/config/model_config.h"
#include "engine/config/strict_json.h"

namespace trimtab {

/// A config.json, or an object in it. A key that is null counts as missing: there, null means "take
/// the default of the model type", unless the type says otherwise (Nullable).
class ConfigFile {
 public:
  /// Throws InputError if it is no object.
  ConfigFile(const nlohmann::json& json, const std::string& where);
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  StrictObject& object() { return object_; }
  /// Its model_type, which must be there.
  std::string type();
  /// The object at `key`; an empty one if it is missing.
  ConfigFile Within(const std::string& key);

  /// Name, sizes, epsilon, standard deviation, tied embeddings. `model` is its family: what it says
  /// of them holds where the file does not.
  void Sizes(ModelConfig& model);
  /// Refuses a file that neither Sizes nor its type found the width of a gated MLP in.
  void RequireSizes(ModelConfig& model);
  /// The activation `key` names, gated if the model's is; `usual` if the key is missing.
  void Activation(const std::string& key, const std::string& usual, ModelConfig& model);
  /// Base, turned fraction and scaling of rotary positions, at the top level or (from Transformers
  /// 5 on) in rope_parameters.
  void Rope(ModelConfig& model);
  /// Refuses a list of layer types that says other than the model's sliding windows do.
  void LayerTypes(const ModelConfig& model);

  bool IsNull(const std::string& key) const;
  /// A number that null sets to 0.
  void Nullable(const std::string& key, int64_t& value, int64_t most);
  void Nullable(const std::string& key, double& value);
  /// Refuses a feature: `key` may be missing or equal to `neutral`.
  void RequireNeutral(const std::string& key, const nlohmann::json& neutral,
                      const std::string& feature);

 private:
  /// The first of `names` that is there; empty if none is.
  std::string NameOf(std::span<const char* const> names) const;
  void Integer(std::span<const char* const> names, int64_t& value, int64_t most,
               Need need = Need::kOptional);
  void Number(std::span<const char* const> names, double& value, double least, double most);
  void Scaling(const std::string& key, ModelConfig& model);

  nlohmann::json all_;
  nlohmann::json kept_;  // without nulls
  StrictObject object_;
};

}  // namespace trimtab

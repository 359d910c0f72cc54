// Keys of a Hugging Face config.json that many model types share, under all their names.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_config.h"

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
  /// The major version of Transformers that wrote the file; 4 where it does not say.
  int64_t version();
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
  /// Takes from `layer_types`, if it is there, which layers have the model's sliding window.
  void LayerTypes(ModelConfig& model);
  /// Numbers of experts and of those that a token takes, under all their names.
  void Experts(MoeConfig& moe, Need chosen = Need::kOptional);

  bool IsNull(const std::string& key) const;
  /// A number that null sets to 0.
  void Nullable(const std::string& key, int64_t& value, int64_t most);
  void Nullable(const std::string& key, double& value);
  /// Refuses a feature: `key` may be missing or equal to `neutral`.
  void RequireNeutral(const std::string& key, const nlohmann::json& neutral,
                      const std::string& feature);
  /// Passes over a key that the class of the model type does not read.
  void PassOver(const std::string& key);

  /// Looks at the keys that were not read: passes over those that change no result or ask for what
  /// the engine does for `model` anyway, and refuses the others by name.
  void Finish(const ModelConfig& model);
  /// Lines for the log: which keys were passed over, and which meaning of two was taken.
  std::vector<std::string> Notes() const;

 private:
  /// What a file and the objects in it were found to say beside the model.
  struct Told {
    std::vector<std::string> passed;
    std::vector<std::string> lines;
  };

  ConfigFile(const nlohmann::json& json, const std::string& where, std::string prefix,
             std::shared_ptr<Told> told);
  /// The first of `names` that is there; empty if none is.
  std::string NameOf(std::span<const char* const> names) const;
  void Integer(std::span<const char* const> names, int64_t& value, int64_t most,
               Need need = Need::kOptional);
  void Number(std::span<const char* const> names, double& value, double least, double most);
  /// Reads the rotary positions at `key`, of one kind for all layers; false if there are none.
  bool Scaling(const std::string& key, ModelConfig& model);
  /// Reads them from this object, which holds nothing else. `outer` is the file.
  void ReadScaling(ConfigFile& outer, ModelConfig& model);
  void ReadYarn(RopeScaling& scaling);

  nlohmann::json all_;
  nlohmann::json kept_;  // without nulls
  std::string prefix_;   // of the keys in the log: "attn_config."
  StrictObject object_;
  std::shared_ptr<Told> told_;
};

/// Names of the base of rotary positions, and of the turned fraction of a head.
inline constexpr const char* kThetaNames[] = {"rope_theta", "rotary_emb_base"};
inline constexpr const char* kFractionNames[] = {"partial_rotary_factor", "rotary_pct",
                                                 "rope_percent", "rope_percentage"};

}  // namespace trimtab

// A family of models: everything that is particular to it, in one value.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/families/keys/config_file.h"
#include "engine/families/tensor_names.h"

namespace trimtab {

/// A key of config.json that asks for something the engine does not do unless it is `neutral`.
struct RefusedKey {
  const char* key;
  nlohmann::json neutral;
  const char* feature;  // as the message names it: "unscaled attention"
};

/// Built-in models under one title.
struct PresetGroup {
  std::string title;
  std::vector<ModelConfig> models;
};

/// Facts of a family; each file of this folder makes one or more of them. Their source is
/// configuration_TYPE.py and modeling_TYPE.py of Transformers.
struct Family {
  /// Values of config.json's model_type, the one that exports have first. Empty for models that
  /// were published without one: those are presets alone.
  std::vector<std::string> types{};
  /// What all models of the family share. Fields in which they differ have the default of the
  /// family's class in Transformers 4, or 0 where the class makes it of other sizes.
  ModelConfig defaults{};
  /// Reads what a config.json says beside the sizes; a missing key leaves the default.
  void (*read)(ConfigFile& file, ModelConfig& model) = nullptr;
  /// Returns the config.json of a model, without what all types write alike. It may drop what the
  /// type cannot say: ToHuggingFace compares what reads back.
  nlohmann::json (*write)(const ModelConfig& model) = nullptr;
  std::vector<RefusedKey> refused{};
  TensorNames tensors{};
  std::vector<PresetGroup> presets{};
};

/// A preset: sizes, and what else differs between models of a family.
struct PresetRow {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, max_sequence;
  bool tied;
  double epsilon = 1e-5;
  double rope_theta = 10000.0;
  int64_t head_size = 0;  // 0 = hidden / heads
};

/// A preset with experts: how many, how many a token takes, how wide each is, and the weight of the
/// loss that balances them.
struct MoePresetRow {
  PresetRow row;
  struct Experts {
    int64_t count, chosen, ffn;
    double aux_loss = 0.001;
  } experts;
};

/// Makes presets of the family with `defaults`; `change` sets what else the rows share.
PresetGroup MakePresets(
    const char* title, const ModelConfig& defaults, std::span<const PresetRow> rows,
    void (*change)(ModelConfig&) = [](ModelConfig&) {});
PresetGroup MakePresets(
    const char* title, const ModelConfig& defaults, std::span<const MoePresetRow> rows,
    void (*change)(ModelConfig&) = [](ModelConfig&) {});

/// Scales the token embedding by the root of the hidden size.
void ScaleEmbeddingByHiddenSize(ModelConfig& model);

/// Clears fields that say what holds without them, so that equal models compare equal.
void Simplify(ModelConfig& model);

}  // namespace trimtab

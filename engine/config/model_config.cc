#include "engine/config/model_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/hugging_face.h"
#include "engine/config/model_limits.h"
#include "engine/config/model_presets.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

// Names in JSON of the values of each enum, in the enum's order.
const std::array<std::string, 2> kNormNames = {"layernorm", "rmsnorm"};
const std::array<std::string, 2> kActivationNames = {"gelu", "swiglu"};
const std::array<std::string, 2> kPositionNames = {"learned", "rope"};

template <typename Enum>
const std::string& NameOf(Enum value, const std::array<std::string, 2>& names) {
  return names[static_cast<size_t>(value)];
}

template <typename Enum>
void ReadEnum(StrictObject& object, const std::string& key, Enum& value,
              const std::array<std::string, 2>& names) {
  std::string name = NameOf(value, names);
  object.Choice(key, name, names);
  value = static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

int64_t MoeLayers(const ModelConfig& model) {
  int64_t count = 0;
  for (int64_t i = 0; i < model.num_layers; ++i) count += model.layer_kind(i).moe ? 1 : 0;
  return count;
}

/// Parameters of an MLP of width `ffn`.
int64_t MlpSize(const ModelConfig& model, int64_t ffn) {
  const int64_t biases = model.bias ? model.fc1_size(ffn) + model.hidden_size : 0;
  return model.hidden_size * (model.fc1_size(ffn) + ffn) + biases;
}

/// Parameters of an MLP with experts, of which `experts` are counted.
int64_t MoeSize(const ModelConfig& model, int64_t experts) {
  const MoeConfig& moe = model.moe;
  const int64_t router =
      moe.num_experts * (model.hidden_size + (moe.router_bias ? 1 : 0) + (moe.expert_bias ? 1 : 0));
  const int64_t shared =
      moe.shared_ffn_hidden_size == 0 ? 0 : MlpSize(model, moe.shared_ffn_hidden_size);
  const int64_t gate = moe.shared_expert_gate ? model.hidden_size : 0;
  return experts * MlpSize(model, moe.ffn_hidden_size) + router + shared + gate;
}

ModelConfig LoadModelFile(std::string path) {
  if (std::filesystem::is_directory(path)) path += "/config.json";
  const nlohmann::json json = ReadJsonFile(path);
  const std::string where = path + ": $";
  ModelConfig model = IsHuggingFaceConfig(json) ? ModelConfigFromHuggingFace(json, where)
                                                : ModelConfigFromJson(json, where);
  if (model.name.empty()) model.name = path;
  return model;
}

}  // namespace

int64_t ModelConfig::padded_vocab_size(int64_t tp) const {
  return RoundUp(vocab_size, make_vocab_size_divisible_by * tp);
}

int64_t ModelConfig::parameter_count() const {
  const int64_t attention_size = num_heads * head_size();
  const int64_t norm_size = norm == NormKind::kLayerNorm ? 2 * hidden_size : hidden_size;
  const int64_t attention = hidden_size * qkv_size() + attention_size * hidden_size +
                            (bias ? qkv_size() + hidden_size : 0);
  const int64_t positions =
      position == PositionKind::kLearned ? max_sequence_length * hidden_size : 0;
  const int64_t embeddings = (tied_embeddings ? 1 : 2) * vocab_size * hidden_size;
  const int64_t moe_layers = MoeLayers(*this);
  const int64_t mlps = (num_layers - moe_layers) * MlpSize(*this, ffn_hidden_size) +
                       moe_layers * MoeSize(*this, moe.num_experts);
  return num_layers * (attention + 2 * norm_size) + mlps + norm_size + positions + embeddings;
}

int64_t ModelConfig::active_parameter_count() const {
  return parameter_count() -
         MoeLayers(*this) * (MoeSize(*this, moe.num_experts) -
                             MoeSize(*this, std::min(moe.router_topk, moe.num_experts)));
}

int64_t ModelConfig::active_mlp_weights() const {
  const auto weights = [this](int64_t ffn) { return hidden_size * (fc1_size(ffn) + ffn); };
  const int64_t moe_layers = MoeLayers(*this);
  const int64_t moe_weights = moe.router_topk * weights(moe.ffn_hidden_size) +
                              hidden_size * moe.num_experts + weights(moe.shared_ffn_hidden_size) +
                              (moe.shared_expert_gate ? hidden_size : 0);
  return (num_layers - moe_layers) * weights(ffn_hidden_size) + moe_layers * moe_weights;
}

LayerKind ModelConfig::layer_kind(int64_t layer) const {
  if (!layer_kinds.empty()) return layer_kinds.at(static_cast<size_t>(layer));
  return {.moe = moe.is_moe_layer(layer)};
}

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const ModelConfig& preset : ModelPresets()) names.push_back(preset.name);
  return names;
}

ModelConfig LoadModelConfig(const std::string& preset_or_path) {
  for (const ModelConfig& preset : ModelPresets()) {
    if (preset.name == preset_or_path) return preset;
  }
  std::error_code ignored;
  const bool is_path = preset_or_path.find('/') != std::string::npos ||
                       preset_or_path.ends_with(".json") ||
                       std::filesystem::exists(preset_or_path, ignored);
  if (is_path) return LoadModelFile(preset_or_path);
  throw UsageError(fmt::format("model '{}' is neither a preset nor a file{}", preset_or_path,
                               SuggestName(preset_or_path, ModelPresetNames())));
}

ModelConfig ModelConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ModelConfig model;
  object.Text("name", model.name);
  object.Integer("vocab_size", model.vocab_size, 1, kMaxVocab, Need::kRequired);
  object.Integer("hidden_size", model.hidden_size, 1, kMaxHidden, Need::kRequired);
  object.Integer("num_layers", model.num_layers, 1, kMaxLayers, Need::kRequired);
  object.Integer("num_heads", model.num_heads, 1, kMaxHeads, Need::kRequired);
  model.num_kv_heads = model.num_heads;
  object.Integer("num_kv_heads", model.num_kv_heads, 1, kMaxHeads);
  model.ffn_hidden_size = 4 * model.hidden_size;
  object.Integer("ffn_hidden_size", model.ffn_hidden_size, 1, kMaxFfn);
  object.Integer("max_sequence_length", model.max_sequence_length, 1, kMaxSequence,
                 Need::kRequired);
  ReadEnum(object, "norm", model.norm, kNormNames);
  ReadEnum(object, "activation", model.activation, kActivationNames);
  ReadEnum(object, "position", model.position, kPositionNames);
  object.Number("norm_epsilon", model.norm_epsilon, 1e-30, 1.0);
  object.Number("rope_theta", model.rope_theta, 1.0, 1e12);
  object.Boolean("bias", model.bias);
  object.Boolean("tied_embeddings", model.tied_embeddings);
  object.Number("init_std", model.init_std, 0.0, 10.0);
  object.Integer("make_vocab_size_divisible_by", model.make_vocab_size_divisible_by, 1, kMaxVocab);
  if (const nlohmann::json* moe = object.Find("moe")) {
    model.moe = MoeConfigFromJson(*moe, object.Where("moe"));
  }
  object.Finish();
  return model;
}

nlohmann::json ToJson(const ModelConfig& model) {
  nlohmann::json json = {{"name", model.name},
                         {"vocab_size", model.vocab_size},
                         {"hidden_size", model.hidden_size},
                         {"num_layers", model.num_layers},
                         {"num_heads", model.num_heads},
                         {"num_kv_heads", model.num_kv_heads},
                         {"ffn_hidden_size", model.ffn_hidden_size},
                         {"max_sequence_length", model.max_sequence_length},
                         {"norm", NameOf(model.norm, kNormNames)},
                         {"activation", NameOf(model.activation, kActivationNames)},
                         {"position", NameOf(model.position, kPositionNames)},
                         {"norm_epsilon", model.norm_epsilon},
                         {"rope_theta", model.rope_theta},
                         {"bias", model.bias},
                         {"tied_embeddings", model.tied_embeddings},
                         {"init_std", model.init_std},
                         {"make_vocab_size_divisible_by", model.make_vocab_size_divisible_by}};
  if (model.moe.used()) json["moe"] = ToJson(model.moe);
  return json;
}

}  // namespace trimtab

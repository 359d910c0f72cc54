#include "engine/config/model_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/hugging_face.h"
#include "engine/config/model_presets.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

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

bool ModelConfig::gated() const {
  return activation == ActivationKind::kSwiGlu || activation == ActivationKind::kGeGlu ||
         activation == ActivationKind::kGeGluErf;
}

int64_t ModelConfig::rotary_size() const {
  // A product that rounds to just below a whole number is that number.
  return static_cast<int64_t>(
      std::floor(static_cast<double>(head_size()) * rotary_fraction + 1e-9));
}

LayerKind ModelConfig::layer_kind(int64_t layer) const {
  if (!layer_kinds.empty()) return layer_kinds.at(static_cast<size_t>(layer));
  const bool full = full_attention_period > 0 && (layer + 1) % full_attention_period == 0;
  return {.sliding_window = full ? 0 : sliding_window};
}

int64_t ModelConfig::parameter_count() const {
  const int64_t norm_size = has_norm_bias() ? 2 * hidden_size : hidden_size;
  const int64_t layer_norms = block == BlockKind::kParallelShared ? 1
                              : block == BlockKind::kSandwich     ? 4
                                                                  : 2;
  const int64_t weights = hidden_size * qkv_size() + attention_size() * hidden_size +
                          hidden_size * fc1_size() + ffn_hidden_size * hidden_size;
  const int64_t biases = (has_qkv_bias() ? qkv_size() : 0) + (bias ? hidden_size : 0) +
                         (has_mlp_bias() ? fc1_size() + hidden_size : 0);
  const int64_t head_norms = query_key_norm ? 2 * head_size() : 0;
  const int64_t layer = weights + biases + head_norms + layer_norms * norm_size;
  const int64_t positions = position == PositionKind::kLearned ? position_rows() * hidden_size : 0;
  const int64_t embeddings = (tied_embeddings ? 1 : 2) * vocab_size * hidden_size;
  const int64_t ends = (embedding_norm ? 2 : 1) * norm_size + (output_bias ? vocab_size : 0);
  return num_layers * layer + positions + embeddings + ends;
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

}  // namespace trimtab

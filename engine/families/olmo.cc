// OLMo 2 and 3.
#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kOlmo2Presets[] = {
    {"olmo2-1b", 16, 2048, 16, 16, 8192, 100352, 4096, false, 1e-6, 5e5},
    {"olmo2-7b", 32, 4096, 32, 32, 11008, 100352, 4096, false, 1e-6, 5e5},
    {"olmo2-13b", 40, 5120, 40, 40, 13824, 100352, 4096, false, 1e-6, 5e5},
    {"olmo2-32b", 64, 5120, 40, 8, 27648, 100352, 4096, false, 1e-6, 5e5},
};
constexpr PresetRow kOlmo3Presets[] = {
    {"olmo3-7b", 32, 4096, 32, 32, 11008, 100278, 65536, false, 1e-6, 5e5},
    {"olmo3-32b", 64, 5120, 40, 8, 27648, 100278, 65536, false, 1e-6, 5e5},
};

ModelConfig Olmo2Defaults() {
  ModelConfig model = LlamaDefaults();
  model.max_sequence_length = 2048;
  model.norm_epsilon = 1e-5;
  model.block = BlockKind::kReorderedNorm;
  model.query_key_norm = true;
  model.query_key_norm_whole = true;
  return model;
}

ModelConfig Olmo3Defaults() {
  ModelConfig model = Olmo2Defaults();
  model.sliding_window = 4096;
  model.full_attention_period = 4;
  return model;
}

void ReadOlmo2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
}

void ReadOlmo3(ConfigFile& file, ModelConfig& model) {
  if (file.version() >= 5) model.rope_theta = 5e5;  // the class's default from then on
  ReadOlmo2(file, model);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
  // Scaling at the top level is that of layers that see all.
  if (model.window_rope_theta == 0) model.window_rope_theta = model.rope_theta;
}

nlohmann::json WriteOlmo2(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "Olmo2ForCausalLM");
  config.erase("mlp_bias");
  return config;
}

nlohmann::json WriteOlmo3(const ModelConfig& model) {
  nlohmann::json config = WriteOlmo2(model);
  config["architectures"] = {"Olmo3ForCausalLM"};
  WriteWindow(model, config);
  WriteLayerTypes(model, config);
  return config;
}

}  // namespace

Family Olmo2Family() {
  const ModelConfig defaults = Olmo2Defaults();
  return {.types = {"olmo2"},
          .defaults = defaults,
          .read = ReadOlmo2,
          .write = WriteOlmo2,
          .tensors = LlamaLikeTensors({kLlamaTensors, kSandwichNorms, kGateAndUp}),
          .presets = {MakePresets("OLMo 2", defaults, kOlmo2Presets)}};
}

Family Olmo3Family() {
  const ModelConfig defaults = Olmo3Defaults();
  return {.types = {"olmo3"},
          .defaults = defaults,
          .read = ReadOlmo3,
          .write = WriteOlmo3,
          .tensors = LlamaLikeTensors({kLlamaTensors, kSandwichNorms, kGateAndUp}),
          .presets = {MakePresets("OLMo 3", defaults, kOlmo3Presets, [](ModelConfig& model) {
            model.window_rope_theta = model.rope_theta;
            model.rope_scaling = {
                .kind = RopeScalingKind::kYarn, .factor = 8, .original_length = 8192};
          })}};
}

}  // namespace trimtab

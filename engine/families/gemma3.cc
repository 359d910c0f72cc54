// Gemma 3's language model, alone or as published beside an image encoder.
#include <cmath>

#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kGemma3SmallPresets[] = {
    {"gemma3-270m", 18, 640, 4, 1, 2048, 262144, 32768, true, 1e-6, 1e6, 256},
    {"gemma3-1b", 26, 1152, 4, 1, 6912, 262144, 32768, true, 1e-6, 1e6, 256},
};
constexpr PresetRow kGemma3Presets[] = {
    {"gemma3-4b", 34, 2560, 8, 4, 10240, 262208, 131072, true, 1e-6, 1e6, 256},
    {"gemma3-12b", 48, 3840, 16, 8, 15360, 262208, 131072, true, 1e-6, 1e6, 256},
};
// Its scores are scaled by hidden / heads, not by the head size.
constexpr PresetRow kGemma3LargestPresets[] = {
    {"gemma3-27b", 62, 5376, 32, 16, 21504, 262208, 131072, true, 1e-6, 1e6, 128},
};

// The scale of the embedding, the root of the hidden size, is left to the model.
ModelConfig Gemma3Defaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 4;
  model.max_sequence_length = 131072;
  model.activation = ActivationKind::kGeGlu;
  model.tied_embeddings = true;
  model.block = BlockKind::kSandwich;
  model.head_dim = 256;
  model.query_key_norm = true;
  model.norm_weight_plus_one = true;
  model.attention_scale = 1.0 / 16.0;
  model.sliding_window = 4096;
  model.full_attention_period = 6;
  model.rope_theta = 1e6;
  model.window_rope_theta = 1e4;
  return model;
}

void MakeLong(ModelConfig& model) {
  ScaleEmbeddingByHiddenSize(model);
  model.sliding_window = 1024;
  model.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 8};
}

void ReadGemma3(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_activation", "gelu_pytorch_tanh", model);
  file.PassOver("hidden_act");
  file.object().Number("rope_local_base_freq", model.window_rope_theta, 1.0, 1e12);
  file.Rope(model);
  double scalar = 256;
  file.object().Number("query_pre_attn_scalar", scalar, 1e-6, 1e6);
  model.attention_scale = 1.0 / std::sqrt(scalar);
  file.Nullable("attn_logit_softcapping", model.attention_soft_cap);
  file.Nullable("final_logit_softcapping", model.logit_soft_cap);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
  for (const char* name : {"_sliding_window_pattern", "sliding_window_pattern"}) {
    file.object().Integer(name, model.full_attention_period, 1, kMaxLayers);
  }
  ScaleEmbeddingByHiddenSize(model);
}

nlohmann::json WriteGemma3(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "Gemma3ForCausalLM");
  config.erase("hidden_act");
  config.erase("mlp_bias");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  WriteGemmaScores(model, config);
  config["rope_local_base_freq"] =
      model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta;
  WriteWindow(model, config);
  WriteLayerTypes(model, config);
  return config;
}

}  // namespace

Family Gemma3Family() {
  const ModelConfig defaults = Gemma3Defaults();
  return {
      .types = {"gemma3_text"},
      .defaults = defaults,
      .read = ReadGemma3,
      .write = WriteGemma3,
      .refused = {{"attention_bias", false, "a bias in attention"},
                  {"use_bidirectional_attention", false, "attention to later tokens"}},
      .tensors = LlamaLikeTensors({kLlamaTensors, kSandwichNorms, kGateAndUp}),
      .presets = {MakePresets("Gemma 3", defaults, kGemma3SmallPresets,
                              [](ModelConfig& model) {
                                ScaleEmbeddingByHiddenSize(model);
                                model.sliding_window = 512;
                              }),
                  MakePresets("Gemma 3", defaults, kGemma3Presets, MakeLong),
                  MakePresets("Gemma 3", defaults, kGemma3LargestPresets, [](ModelConfig& model) {
                    MakeLong(model);
                    model.attention_scale = 1.0 / std::sqrt(168.0);
                  })}};
}

}  // namespace trimtab

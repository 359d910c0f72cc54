#include <cmath>

#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kGemma2Presets[] = {
    {"gemma2-2b", 26, 2304, 8, 4, 9216, 256000, 8192, true, 1e-6, 10000.0, 256},
    {"gemma2-9b", 42, 3584, 16, 8, 14336, 256000, 8192, true, 1e-6, 10000.0, 256},
};
// Its scores are scaled by hidden / heads, not by the head size.
constexpr PresetRow kGemma2LargestPresets[] = {
    {"gemma2-27b", 46, 4608, 32, 16, 36864, 256000, 8192, true, 1e-6, 10000.0, 128},
};

// The scale of the embedding, the root of the hidden size, is left to the model.
ModelConfig Gemma2Defaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 4;
  model.max_sequence_length = 8192;
  model.activation = ActivationKind::kGeGlu;
  model.tied_embeddings = true;
  model.block = BlockKind::kSandwich;
  model.head_dim = 256;
  model.norm_weight_plus_one = true;
  model.logit_soft_cap = 30;
  model.attention_soft_cap = 50;
  model.attention_scale = 1.0 / 16.0;
  model.sliding_window = 4096;
  model.full_attention_period = 2;
  return model;
}

void ReadGemma2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_activation", "gelu_pytorch_tanh", model);
  file.PassOver("hidden_act");
  file.Rope(model);
  double scalar = 256;
  file.object().Number("query_pre_attn_scalar", scalar, 1e-6, 1e6);
  model.attention_scale = 1.0 / std::sqrt(scalar);
  file.Nullable("attn_logit_softcapping", model.attention_soft_cap);
  file.Nullable("final_logit_softcapping", model.logit_soft_cap);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
  ScaleEmbeddingByHiddenSize(model);
}

nlohmann::json WriteGemma2(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "Gemma2ForCausalLM");
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  WriteGemmaScores(model, config);
  WriteWindow(model, config);
  return config;
}

}  // namespace

Family Gemma2Family() {
  const ModelConfig defaults = Gemma2Defaults();
  return {
      .types = {"gemma2"},
      .defaults = defaults,
      .read = ReadGemma2,
      .write = WriteGemma2,
      .refused = {{"attention_bias", false, "a bias in attention"}},
      .tensors = LlamaLikeTensors({kLlamaTensors, kSandwichNorms, kGateAndUp}),
      .presets = {MakePresets("Gemma 2", defaults, kGemma2Presets, ScaleEmbeddingByHiddenSize),
                  MakePresets("Gemma 2", defaults, kGemma2LargestPresets, [](ModelConfig& model) {
                    ScaleEmbeddingByHiddenSize(model);
                    model.attention_scale = 1.0 / 12.0;
                  })}};
}

}  // namespace trimtab

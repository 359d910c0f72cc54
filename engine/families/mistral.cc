#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

// Version 0.1 sees 4096 tokens, 0.3 all.
constexpr PresetRow kMistral1Presets[] = {
    {"mistral-7b-v0.1", 32, 4096, 32, 8, 14336, 32000, 32768, false},
};
constexpr PresetRow kMistral3Presets[] = {
    {"mistral-7b-v0.3", 32, 4096, 32, 8, 14336, 32768, 32768, false, 1e-5, 1e6},
};

ModelConfig MistralDefaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 8;
  model.max_sequence_length = 131072;
  model.sliding_window = 4096;
  return model;
}

void ReadMistral(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
}

nlohmann::json WriteMistral(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "MistralForCausalLM");
  for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  WriteWindow(model, config);
  return config;
}

}  // namespace

Family MistralFamily() {
  const ModelConfig defaults = MistralDefaults();
  return {.types = {"mistral"},
          .defaults = defaults,
          .read = ReadMistral,
          .write = WriteMistral,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGateAndUp}),
          .presets = {MakePresets("Mistral", defaults, kMistral1Presets),
                      MakePresets("Mistral", defaults, kMistral3Presets,
                                  [](ModelConfig& model) { model.sliding_window = 0; })}};
}

}  // namespace trimtab

// Qwen2 and Qwen2.5.
#include "engine/families/llama_like.h"
#include "engine/families/qwen.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

// Qwen2 has the same shapes.
constexpr PresetRow kQwen2Presets[] = {
    {"qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, 32768, true, 1e-6, 1e6},
    {"qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, 131072, true, 1e-6, 1e6},
    {"qwen2.5-3b", 36, 2048, 16, 2, 11008, 151936, 32768, true, 1e-6, 1e6},
    {"qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, 131072, false, 1e-6, 1e6},
    {"qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064, 131072, false, 1e-5, 1e6},
    {"qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, 131072, false, 1e-5, 1e6},
    {"qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, 131072, false, 1e-5, 1e6},
};

ModelConfig Qwen2Defaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 32;
  model.max_sequence_length = 32768;
  model.qkv_bias = true;
  return model;
}

void ReadQwen2(ConfigFile& file, ModelConfig& model) {
  ReadQwen(file, model);
  for (const char* key : {"attention_bias", "mlp_bias"}) file.PassOver(key);  // they are fixed
}

nlohmann::json WriteQwen2(const ModelConfig& model) {
  nlohmann::json config = WriteQwen(model, "Qwen2ForCausalLM");
  config.erase("attention_bias");
  return config;
}

}  // namespace

Family Qwen2Family() {
  const ModelConfig defaults = Qwen2Defaults();
  return {.types = {"qwen2"},
          .defaults = defaults,
          .read = ReadQwen2,
          .write = WriteQwen2,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGateAndUp}),
          .presets = {MakePresets("Qwen2.5", defaults, kQwen2Presets)}};
}

}  // namespace trimtab

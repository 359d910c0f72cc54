#include "engine/families/llama_like.h"
#include "engine/families/qwen.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kQwen3Presets[] = {
    {"qwen3-0.6b", 28, 1024, 16, 8, 3072, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-1.7b", 28, 2048, 16, 8, 6144, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-4b", 36, 2560, 32, 8, 9728, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-8b", 36, 4096, 32, 8, 12288, 151936, 40960, false, 1e-6, 1e6, 128},
    {"qwen3-14b", 40, 5120, 40, 8, 17408, 151936, 40960, false, 1e-6, 1e6, 128},
    {"qwen3-32b", 64, 5120, 64, 8, 25600, 151936, 40960, false, 1e-6, 1e6, 128},
};

ModelConfig Qwen3Defaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 32;
  model.max_sequence_length = 32768;
  model.query_key_norm = true;
  model.head_dim = 128;
  return model;
}

void ReadQwen3(ConfigFile& file, ModelConfig& model) {
  ReadQwen(file, model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.PassOver("mlp_bias");
}

nlohmann::json WriteQwen3(const ModelConfig& model) { return WriteQwen(model, "Qwen3ForCausalLM"); }

}  // namespace

Family Qwen3Family() {
  const ModelConfig defaults = Qwen3Defaults();
  return {.types = {"qwen3"},
          .defaults = defaults,
          .read = ReadQwen3,
          .write = WriteQwen3,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGateAndUp}),
          .presets = {MakePresets("Qwen3", defaults, kQwen3Presets)}};
}

}  // namespace trimtab

#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kLlamaPresets[] = {
    {"llama-tiny", 2, 64, 4, 2, 192, 257, 128, false},
    {"llama-15m", 8, 384, 8, 4, 1280, 257, 512, false},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 5632, 32000, 2048, false},
    {"llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, false},
    {"llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, false},
    {"llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, false},
    {"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, false, 1e-5, 500000.0},
    {"llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, false, 1e-5, 500000.0},
    {"llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, false, 1e-5, 500000.0},
};
constexpr PresetRow kLlama31Presets[] = {
    {"llama3.1-8b", 32, 4096, 32, 8, 14336, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.1-70b", 80, 8192, 64, 8, 28672, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.1-405b", 126, 16384, 128, 8, 53248, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.3-70b", 80, 8192, 64, 8, 28672, 128256, 131072, false, 1e-5, 500000.0},
};
constexpr PresetRow kLlama32Presets[] = {
    {"llama3.2-1b", 16, 2048, 32, 8, 8192, 128256, 131072, true, 1e-5, 500000.0},
    {"llama3.2-3b", 28, 3072, 24, 8, 8192, 128256, 131072, true, 1e-5, 500000.0},
};

// Of rotary positions in Llama 3.1 and 3.2.
RopeScaling Llama3Scaling(double factor) {
  return {.kind = RopeScalingKind::kLlama3, .factor = factor, .original_length = 8192};
}

void ReadLlama(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.object().Boolean("mlp_bias", *model.mlp_bias);
}

nlohmann::json WriteLlama(const ModelConfig& model) {
  return WriteLlamaLike(model, "LlamaForCausalLM");
}

}  // namespace

Family LlamaFamily() {
  const ModelConfig defaults = LlamaDefaults();
  return {
      .types = {"llama"},
      .defaults = defaults,
      .read = ReadLlama,
      .write = WriteLlama,
      .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGateAndUp}),
      .presets = {MakePresets("Llama", defaults, kLlamaPresets),
                  MakePresets("Llama", defaults, kLlama31Presets,
                              [](ModelConfig& model) { model.rope_scaling = Llama3Scaling(8); }),
                  MakePresets("Llama", defaults, kLlama32Presets,
                              [](ModelConfig& model) { model.rope_scaling = Llama3Scaling(32); })}};
}

}  // namespace trimtab

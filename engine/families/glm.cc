// GLM-4, of two types: the later one adds a norm after attention and MLP.
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kGlmMlp[] = {
    {"decoder.layers.*.mlp.linear_fc1", {"model.layers.*.mlp.gate_up_proj"}},
};
constexpr TensorRow kGlm4Norms[] = {
    {"decoder.layers.*.post_attention_layernorm", {"model.layers.*.post_self_attn_layernorm"}},
    {"decoder.layers.*.post_mlp_layernorm", {"model.layers.*.post_mlp_layernorm"}},
};

constexpr PresetRow kGlm4BiasedPresets[] = {
    {"glm-4-9b-0414", 40, 4096, 32, 2, 13696, 151552, 32768, false, 1e-5, 10000.0, 128},
};
constexpr PresetRow kGlm4Presets[] = {
    {"glm-4-32b-0414", 61, 6144, 48, 2, 23040, 151552, 32768, false, 1e-5, 10000.0, 128},
};

ModelConfig GlmDefaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 2;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1.5625e-7;
  model.qkv_bias = true;
  model.head_dim = 128;
  model.rotary_fraction = 0.5;
  model.rotary_interleaved = true;
  return model;
}

void ReadGlm(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", *model.qkv_bias);
}

nlohmann::json WriteGlmOf(const ModelConfig& model, const char* architecture) {
  nlohmann::json config = WriteLlamaLike(model, architecture);
  config.erase("mlp_bias");
  config["attention_bias"] = model.has_qkv_bias();
  config["partial_rotary_factor"] = model.rotary_fraction;
  return config;
}
nlohmann::json WriteGlm(const ModelConfig& model) { return WriteGlmOf(model, "GlmForCausalLM"); }
nlohmann::json WriteGlm4(const ModelConfig& model) { return WriteGlmOf(model, "Glm4ForCausalLM"); }

}  // namespace

Family GlmFamily() {
  return {.types = {"glm"},
          .defaults = GlmDefaults(),
          .read = ReadGlm,
          .write = WriteGlm,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGlmMlp})};
}

Family Glm4Family() {
  ModelConfig defaults = GlmDefaults();
  defaults.block = BlockKind::kSandwich;
  return {.types = {"glm4"},
          .defaults = defaults,
          .read = ReadGlm,
          .write = WriteGlm4,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGlm4Norms, kGlmMlp}),
          .presets = {MakePresets("GLM", defaults, kGlm4BiasedPresets),
                      MakePresets("GLM", defaults, kGlm4Presets,
                                  [](ModelConfig& model) { model.qkv_bias = false; })}};
}

}  // namespace trimtab

// GPT-NeoX and Pythia.
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kGptNeoxTensors[] = {
    {"embedding.word_embeddings", {"gpt_neox.embed_in"}},
    {"decoder.layers.*.input_layernorm", {"gpt_neox.layers.*.input_layernorm"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"gpt_neox.layers.*.attention.query_key_value"},
     kHeadGroups},
    {"decoder.layers.*.self_attention.linear_proj", {"gpt_neox.layers.*.attention.dense"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"gpt_neox.layers.*.post_attention_layernorm"}},
    {"decoder.layers.*.mlp.linear_fc1", {"gpt_neox.layers.*.mlp.dense_h_to_4h"}},
    {"decoder.layers.*.mlp.linear_fc2", {"gpt_neox.layers.*.mlp.dense_4h_to_h"}},
    {"decoder.final_layernorm", {"gpt_neox.final_layer_norm"}},
    {"output_layer", {"embed_out"}},
};
constexpr std::string_view kGptNeoxBuffers[] = {"gpt_neox.layers.*.attention.bias",
                                                "gpt_neox.layers.*.attention.masked_bias",
                                                "gpt_neox.layers.*.attention.rotary_emb.inv_freq"};

constexpr PresetRow kGptNeoxPresets[] = {
    {"gpt-neox-20b", 44, 6144, 64, 64, 24576, 50432, 2048, false}};
constexpr PresetRow kPythiaPresets[] = {
    {"pythia-14m", 6, 128, 4, 4, 512, 50304, 2048, false},
    {"pythia-31m", 6, 256, 8, 8, 1024, 50304, 2048, false},
    {"pythia-70m", 6, 512, 8, 8, 2048, 50304, 2048, false},
    {"pythia-160m", 12, 768, 12, 12, 3072, 50304, 2048, false},
    {"pythia-410m", 24, 1024, 16, 16, 4096, 50304, 2048, false},
    {"pythia-1b", 16, 2048, 8, 8, 8192, 50304, 2048, false},
    {"pythia-1.4b", 24, 2048, 16, 16, 8192, 50304, 2048, false},
    {"pythia-2.8b", 32, 2560, 32, 32, 10240, 50304, 2048, false},
    {"pythia-6.9b", 32, 4096, 32, 32, 16384, 50432, 2048, false},
    {"pythia-12b", 36, 5120, 40, 40, 20480, 50688, 2048, false},
};

ModelConfig GptNeoxDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kRope;
  model.tied_embeddings = false;
  model.block = BlockKind::kParallel;
  model.rotary_fraction = 0.25;
  model.ffn_hidden_size = 24576;
  return model;
}

void ReadGptNeox(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "gelu", model);
  file.Rope(model);
  bool parallel = true;
  file.object().Boolean("use_parallel_residual", parallel);
  if (!parallel) model.block = BlockKind::kSequential;
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = true;
}

nlohmann::json WriteGptNeox(const ModelConfig& model) {
  const bool tanh = model.activation == ActivationKind::kGelu;
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"max_position_embeddings", model.max_sequence_length},
          {"intermediate_size", model.ffn_hidden_size},
          {"hidden_act", tanh ? "gelu_fast" : "gelu"},
          {"layer_norm_eps", model.norm_epsilon},
          {"rotary_pct", model.rotary_fraction},
          {"rotary_emb_base", model.rope_theta},
          {"use_parallel_residual", model.block == BlockKind::kParallel},
          {"attention_bias", model.bias}};
}

}  // namespace

Family GptNeoxFamily() {
  const ModelConfig defaults = GptNeoxDefaults();
  return {
      .types = {"gpt_neox"},
      .defaults = defaults,
      .read = ReadGptNeox,
      .write = WriteGptNeox,
      .tensors = {.prefix = "gpt_neox.", .rows = {kGptNeoxTensors}, .buffers = kGptNeoxBuffers},
      .presets = {MakePresets("GPT-NeoX", defaults, kGptNeoxPresets,
                              [](ModelConfig& model) { model.activation = ActivationKind::kGelu; }),
                  MakePresets("Pythia", defaults, kPythiaPresets)}};
}

}  // namespace trimtab

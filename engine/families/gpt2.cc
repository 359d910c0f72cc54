// GPT-2, GPT-3 and MT-NLG.
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kGpt2Tensors[] = {
    {"embedding.word_embeddings", {"transformer.wte"}},
    {"embedding.position_embeddings", {"transformer.wpe"}},
    {"decoder.layers.*.input_layernorm", {"transformer.h.*.ln_1"}},
    {"decoder.layers.*.self_attention.linear_qkv", {"transformer.h.*.attn.c_attn"}, kTransposed},
    {"decoder.layers.*.self_attention.linear_proj", {"transformer.h.*.attn.c_proj"}, kTransposed},
    {"decoder.layers.*.pre_mlp_layernorm", {"transformer.h.*.ln_2"}},
    {"decoder.layers.*.mlp.linear_fc1", {"transformer.h.*.mlp.c_fc"}, kTransposed},
    {"decoder.layers.*.mlp.linear_fc2", {"transformer.h.*.mlp.c_proj"}, kTransposed},
    {"decoder.final_layernorm", {"transformer.ln_f"}},
    {"output_layer", {"lm_head"}},
};
constexpr std::string_view kGpt2Buffers[] = {"transformer.h.*.attn.bias",
                                             "transformer.h.*.attn.masked_bias"};

// Radford et al. 2019, table 2. The small ones take bytes: 256 and one end-of-text id.
constexpr PresetRow kGpt2Presets[] = {
    {"gpt2-tiny", 2, 64, 4, 4, 256, 257, 128, true},
    {"gpt2-10m", 6, 384, 8, 8, 1536, 257, 256, true},
    {"gpt2-25m", 8, 512, 8, 8, 2048, 257, 512, true},
    {"gpt2-124m", 12, 768, 12, 12, 3072, 50257, 1024, true},
    {"gpt2-355m", 24, 1024, 16, 16, 4096, 50257, 1024, true},
    {"gpt2-774m", 36, 1280, 20, 20, 5120, 50257, 1024, true},
    {"gpt2-1.5b", 48, 1600, 25, 25, 6400, 50257, 1024, true},
};

// Brown et al. 2020, table 2.1, with the head counts that make hidden = heads * head size.
constexpr PresetRow kGpt3Presets[] = {
    {"gpt3-1.3b", 24, 2048, 16, 16, 8192, 50257, 2048, true},
    {"gpt3-2.7b", 32, 2560, 32, 32, 10240, 50257, 2048, true},
    {"gpt3-6.7b", 32, 4096, 32, 32, 16384, 50257, 2048, true},
    {"gpt3-13b", 40, 5120, 40, 40, 20480, 50257, 2048, true},
    {"gpt3-175b", 96, 12288, 96, 96, 49152, 50257, 2048, true},
};

// Smith et al., arXiv:2201.11990, section 2, with a vocabulary rounded up for tensor parallelism.
constexpr PresetRow kMtNlgPresets[] = {
    {"mt-nlg-530b", 105, 20480, 128, 128, 81920, 51200, 2048, true},
};

void ReadGpt2(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
}

nlohmann::json WriteGpt2(const ModelConfig& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"n_positions", model.max_sequence_length},
          {"n_inner", model.ffn_hidden_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

}  // namespace

Family Gpt2Family() {
  return {
      .types = {"gpt2"},
      .read = ReadGpt2,
      .write = WriteGpt2,
      .refused = {{"scale_attn_weights", true, "unscaled attention"},
                  {"scale_attn_by_inverse_layer_idx", false, "attention scaled by the layer index"},
                  {"add_cross_attention", false, "cross attention"}},
      .tensors = {.prefix = "transformer.", .rows = {kGpt2Tensors}, .buffers = kGpt2Buffers},
      .presets = {MakePresets("GPT-2", {}, kGpt2Presets), MakePresets("GPT-3", {}, kGpt3Presets),
                  MakePresets("MT-NLG", {}, kMtNlgPresets)}};
}

}  // namespace trimtab

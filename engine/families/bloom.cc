#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kBloomTensors[] = {
    {"embedding.word_embeddings", {"transformer.word_embeddings"}},
    {"embedding.word_embeddings_layernorm", {"transformer.word_embeddings_layernorm"}},
    {"decoder.layers.*.input_layernorm", {"transformer.h.*.input_layernorm"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"transformer.h.*.self_attention.query_key_value"},
     kHeadGroups},
    {"decoder.layers.*.self_attention.linear_proj", {"transformer.h.*.self_attention.dense"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"transformer.h.*.post_attention_layernorm"}},
    {"decoder.layers.*.mlp.linear_fc1", {"transformer.h.*.mlp.dense_h_to_4h"}},
    {"decoder.layers.*.mlp.linear_fc2", {"transformer.h.*.mlp.dense_4h_to_h"}},
    {"decoder.final_layernorm", {"transformer.ln_f"}},
    {"output_layer", {"lm_head"}},
};

constexpr PresetRow kBloomPresets[] = {
    {"bloom-560m", 24, 1024, 16, 16, 4096, 250880, 2048, true},
    {"bloom-1b1", 24, 1536, 16, 16, 6144, 250880, 2048, true},
    {"bloom-1b7", 24, 2048, 16, 16, 8192, 250880, 2048, true},
    {"bloom-3b", 30, 2560, 32, 32, 10240, 250880, 2048, true},
    {"bloom-7b1", 30, 4096, 32, 32, 16384, 250880, 2048, true},
    {"bloom-176b", 70, 14336, 112, 112, 57344, 250880, 2048, true},
};

ModelConfig BloomDefaults() {
  ModelConfig model;
  model.position = PositionKind::kAlibi;
  model.embedding_norm = true;
  return model;
}

void ReadBloom(ConfigFile&, ModelConfig& model) {
  model.ffn_hidden_size = 4 * model.hidden_size;  // n_inner means nothing there
}

nlohmann::json WriteBloom(const ModelConfig& model) {
  return {{"architectures", {"BloomForCausalLM"}},
          {"hidden_size", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"seq_length", model.max_sequence_length},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

}  // namespace

Family BloomFamily() {
  const ModelConfig defaults = BloomDefaults();
  return {.types = {"bloom"},
          .defaults = defaults,
          .read = ReadBloom,
          .write = WriteBloom,
          .refused = {{"apply_residual_connection_post_layernorm", false,
                       "a residual stream of normed values"}},
          .tensors = {.prefix = "transformer.", .rows = {kBloomTensors}},
          .presets = {MakePresets("BLOOM", defaults, kBloomPresets)}};
}

}  // namespace trimtab

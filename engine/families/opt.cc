#include "engine/config/model/model_limits.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kOptTensors[] = {
    {"embedding.word_embeddings", {"model.decoder.embed_tokens"}},
    {"embedding.position_embeddings", {"model.decoder.embed_positions"}},
    {"embedding.project_in", {"model.decoder.project_in"}},
    {"decoder.layers.*.input_layernorm",
     {"model.decoder.layers.*.self_attn_layer_norm"},
     kSame,
     BlockKind::kSequential},
    {"decoder.layers.*.post_attention_layernorm",
     {"model.decoder.layers.*.self_attn_layer_norm"},
     kSame,
     BlockKind::kPostNorm},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"model.decoder.layers.*.self_attn.q_proj", "model.decoder.layers.*.self_attn.k_proj",
      "model.decoder.layers.*.self_attn.v_proj"},
     kStacked},
    {"decoder.layers.*.self_attention.linear_proj", {"model.decoder.layers.*.self_attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm",
     {"model.decoder.layers.*.final_layer_norm"},
     kSame,
     BlockKind::kSequential},
    {"decoder.layers.*.post_mlp_layernorm",
     {"model.decoder.layers.*.final_layer_norm"},
     kSame,
     BlockKind::kPostNorm},
    {"decoder.layers.*.mlp.linear_fc1", {"model.decoder.layers.*.fc1"}},
    {"decoder.layers.*.mlp.linear_fc2", {"model.decoder.layers.*.fc2"}},
    {"decoder.final_layernorm", {"model.decoder.final_layer_norm"}},
    {"decoder.project_out", {"model.decoder.project_out"}},
    {"output_layer", {"lm_head"}},
};

constexpr PresetRow kOpt125mPresets[] = {{"opt-125m", 12, 768, 12, 12, 3072, 50272, 2048, true}};
// Its norms come after attention and MLP, and its embedding is narrower than its layers.
constexpr PresetRow kOpt350mPresets[] = {{"opt-350m", 24, 1024, 16, 16, 4096, 50272, 2048, true}};
constexpr PresetRow kOptPresets[] = {
    {"opt-1.3b", 24, 2048, 32, 32, 8192, 50272, 2048, true},
    {"opt-2.7b", 32, 2560, 32, 32, 10240, 50272, 2048, true},
    {"opt-6.7b", 32, 4096, 32, 32, 16384, 50272, 2048, true},
    {"opt-13b", 40, 5120, 40, 40, 20480, 50272, 2048, true},
    {"opt-30b", 48, 7168, 56, 56, 28672, 50272, 2048, true},
    {"opt-66b", 64, 9216, 72, 72, 36864, 50272, 2048, true},
    {"opt-175b", 96, 12288, 96, 96, 49152, 50272, 2048, true},
};

ModelConfig OptDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kRelu;
  model.position_offset = 2;
  model.ffn_hidden_size = 3072;
  return model;
}

void ReadOpt(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "relu", model);
  StrictObject& object = file.object();
  bool before = true;
  object.Boolean("do_layer_norm_before", before);
  if (!before) model.block = BlockKind::kPostNorm;
  bool removed = false;
  object.Boolean("_remove_final_layer_norm", removed);
  model.final_norm = before && !removed;
  object.Integer("word_embed_proj_dim", model.embedding_dim, 1, kMaxHidden);
  object.Boolean("enable_bias", model.bias);
  object.Number("init_std", model.init_std, 0.0, 10.0);
}

nlohmann::json WriteOpt(const ModelConfig& model) {
  return {{"architectures", {"OPTForCausalLM"}},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"max_position_embeddings", model.max_sequence_length},
          {"ffn_dim", model.ffn_hidden_size},
          {"word_embed_proj_dim", model.embedding_size()},
          {"activation_function", "relu"},
          {"do_layer_norm_before", model.block != BlockKind::kPostNorm},
          {"_remove_final_layer_norm", !model.final_norm},
          {"enable_bias", model.bias},
          {"init_std", model.init_std}};
}

}  // namespace

Family OptFamily() {
  const ModelConfig defaults = OptDefaults();
  return {.types = {"opt"},
          .defaults = defaults,
          .read = ReadOpt,
          .write = WriteOpt,
          .refused = {{"layer_norm_elementwise_affine", true, "a norm without weights"}},
          .tensors = {.prefix = "model.", .rows = {kOptTensors}},
          .presets = {MakePresets("OPT", defaults, kOpt125mPresets),
                      MakePresets("OPT", defaults, kOpt350mPresets,
                                  [](ModelConfig& model) {
                                    model.block = BlockKind::kPostNorm;
                                    model.final_norm = false;
                                    model.embedding_dim = 512;
                                  }),
                      MakePresets("OPT", defaults, kOptPresets)}};
}

}  // namespace trimtab

#include "engine/base/error.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kMptTensors[] = {
    {"embedding.word_embeddings", {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", {"transformer.blocks.*.norm_1"}},
    {"decoder.layers.*.self_attention.linear_qkv", {"transformer.blocks.*.attn.Wqkv"}},
    {"decoder.layers.*.self_attention.linear_proj", {"transformer.blocks.*.attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"transformer.blocks.*.norm_2"}},
    {"decoder.layers.*.mlp.linear_fc1", {"transformer.blocks.*.ffn.up_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", {"transformer.blocks.*.ffn.down_proj"}},
    {"decoder.final_layernorm", {"transformer.norm_f"}},
    {"output_layer", {"lm_head"}},
};

constexpr PresetRow kMptPresets[] = {
    {"mpt-7b", 32, 4096, 32, 32, 16384, 50432, 2048, true},
    {"mpt-30b", 48, 7168, 64, 64, 28672, 50432, 8192, true},
};

ModelConfig MptDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kAlibi;
  model.bias = false;
  model.norm_bias = false;
  return model;
}

void ReadMpt(ConfigFile& file, ModelConfig& model) {
  StrictObject& object = file.object();
  int64_t expansion = 4;
  object.Integer("expansion_ratio", expansion, 1, 64);
  model.ffn_hidden_size = expansion * model.hidden_size;
  bool no_bias = true;
  object.Boolean("no_bias", no_bias);
  model.bias = model.norm_bias = !no_bias;
  object.Number("logit_scale", model.logit_scale, 1e-6, 1e6);
  ConfigFile in = file.Within("attn_config");
  in.RequireNeutral("alibi", true, "attention without ALiBi");
  in.RequireNeutral("alibi_bias_max", 8, "another range of ALiBi's slopes");
  in.RequireNeutral("qk_ln", false, "a norm over all query and key heads together");
  in.RequireNeutral("prefix_lm", false, "attention over a prefix");
  in.object().Number("softmax_scale", model.attention_scale, 1e-6, 1e6);
  in.object().Number("clip_qkv", model.qkv_clip, 1e-6, 1e6);
  in.object().Integer("kv_n_heads", model.num_kv_heads, 1, kMaxHeads);
  in.PassOver("attn_type");  // kv_n_heads decides
  in.Finish(model);
  file.PassOver("norm_type");  // of another precision only
  if ((model.num_heads & (model.num_heads - 1)) != 0) {
    throw InputError(fmt::format(
        "{}: {} heads, and MPT orders ALiBi's slopes in its own way unless that is a power of 2",
        object.Where("n_heads"), model.num_heads));
  }
}

nlohmann::json WriteMpt(const ModelConfig& model) {
  nlohmann::json config = {{"architectures", {"MPTForCausalLM"}},
                           {"d_model", model.hidden_size},
                           {"n_layers", model.num_layers},
                           {"n_heads", model.num_heads},
                           {"max_seq_len", model.max_sequence_length},
                           {"expansion_ratio", model.ffn_hidden_size / model.hidden_size},
                           {"no_bias", !model.bias},
                           {"layer_norm_epsilon", model.norm_epsilon},
                           {"attn_config", {{"alibi", true}, {"kv_n_heads", model.num_kv_heads}}}};
  if (model.qkv_clip > 0) config["attn_config"]["clip_qkv"] = model.qkv_clip;
  if (model.attention_scale > 0) config["attn_config"]["softmax_scale"] = model.attention_scale;
  if (model.logit_scale != 1.0) config["logit_scale"] = model.logit_scale;
  return config;
}

}  // namespace

Family MptFamily() {
  const ModelConfig defaults = MptDefaults();
  return {.types = {"mpt"},
          .defaults = defaults,
          .read = ReadMpt,
          .write = WriteMpt,
          .tensors = {.prefix = "transformer.", .rows = {kMptTensors}},
          .presets = {MakePresets("MPT", defaults, kMptPresets)}};
}

}  // namespace trimtab

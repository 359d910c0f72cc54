#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kDbrxTensors[] = {
    {"embedding.word_embeddings", {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", {"transformer.blocks.*.norm_attn_norm.norm_1"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"transformer.blocks.*.norm_attn_norm.attn.Wqkv"}},
    {"decoder.layers.*.self_attention.linear_proj",
     {"transformer.blocks.*.norm_attn_norm.attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"transformer.blocks.*.norm_attn_norm.norm_2"}},
    {"decoder.layers.*.mlp.router", {"transformer.blocks.*.ffn.router.layer"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     {"transformer.blocks.*.ffn.experts.mlp.w1", "transformer.blocks.*.ffn.experts.mlp.v1"},
     kStackedExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     {"transformer.blocks.*.ffn.experts.mlp.w2"},
     kTransposedRowsExperts},
    {"decoder.final_layernorm", {"transformer.norm_f"}},
    {"output_layer", {"lm_head"}},
};

constexpr MoePresetRow kDbrxPresets[] = {
    {{"dbrx-132b", 40, 6144, 48, 8, 10752, 100352, 32768, false, 1e-5, 500000.0},
     {16, 4, 10752, 0.05}},
};

ModelConfig DbrxDefaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 1;
  model.norm = NormKind::kLayerNorm;
  model.norm_bias = false;
  model.norm_epsilon = 1e-5;
  model.moe.aux_loss_coeff = 0.01;
  return model;
}

void ReadDbrx(ConfigFile& file, ModelConfig& model) {
  {
    ConfigFile in = file.Within("attn_config");
    in.object().Integer("kv_n_heads", model.num_kv_heads, 1, kMaxHeads);
    in.object().Number("clip_qkv", model.qkv_clip, 1e-6, 1e6);
    in.object().Number("rope_theta", model.rope_theta, 1.0, 1e12);
    in.Finish(model);
  }
  file.Rope(model);
  ConfigFile in = file.Within("ffn_config");
  MoeConfig& moe = model.moe;
  model.ffn_hidden_size = 3584;
  in.object().Integer("ffn_hidden_size", model.ffn_hidden_size, 1, kMaxFfn);
  moe.ffn_hidden_size = model.ffn_hidden_size;
  moe.num_experts = 4;
  moe.router_topk = 1;
  in.object().Integer("moe_num_experts", moe.num_experts, 1, kMaxExperts);
  in.object().Integer("moe_top_k", moe.router_topk, 1, kMaxExperts);
  in.object().Number("moe_loss_weight", moe.aux_loss_coeff, 0, 1e6);
  in.RequireNeutral("moe_normalize_expert_weights", 1, "weights of another norm");
  in.Finish(model);
}

nlohmann::json WriteDbrx(const ModelConfig& model) {
  nlohmann::json config = {
      {"architectures", {"DbrxForCausalLM"}},
      {"d_model", model.hidden_size},
      {"n_layers", model.num_layers},
      {"n_heads", model.num_heads},
      {"max_seq_len", model.max_sequence_length},
      {"attn_config", {{"kv_n_heads", model.num_kv_heads}, {"rope_theta", model.rope_theta}}},
      {"ffn_config",
       {{"ffn_hidden_size", model.moe.ffn_hidden_size},
        {"moe_num_experts", model.moe.num_experts},
        {"moe_top_k", model.moe.router_topk},
        {"moe_loss_weight", model.moe.aux_loss_coeff},
        {"moe_normalize_expert_weights", 1}}}};
  if (model.qkv_clip > 0) config["attn_config"]["clip_qkv"] = model.qkv_clip;
  return config;
}

}  // namespace

Family DbrxFamily() {
  const ModelConfig defaults = DbrxDefaults();
  return {.types = {"dbrx"},
          .defaults = defaults,
          .read = ReadDbrx,
          .write = WriteDbrx,
          .tensors = {.prefix = "transformer.", .rows = {kDbrxTensors}},
          .presets = {MakePresets("DBRX", defaults, kDbrxPresets,
                                  [](ModelConfig& model) { model.qkv_clip = 8; })}};
}

}  // namespace trimtab

#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kGptOssTensors[] = {
    {"decoder.layers.*.self_attention.softmax_offset", {"model.layers.*.self_attn.sinks"}},
    {"decoder.layers.*.mlp.router", {"model.layers.*.mlp.router"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     {"model.layers.*.mlp.experts.gate_up_proj"},
     kInterleavedExperts},
    {"decoder.layers.*.mlp.experts.linear_fc1.bias",
     {"model.layers.*.mlp.experts.gate_up_proj_bias"},
     kInterleavedExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     {"model.layers.*.mlp.experts.down_proj"},
     kTransposedExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2.bias",
     {"model.layers.*.mlp.experts.down_proj_bias"},
     kTransposedExperts},
};

constexpr MoePresetRow kGptOssPresets[] = {
    {{"gpt-oss-20b", 24, 2880, 64, 8, 2880, 201088, 131072, false, 1e-5, 150000.0, 64},
     {32, 4, 2880, 0.9}},
    {{"gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, 131072, false, 1e-5, 150000.0, 64},
     {128, 4, 2880, 0.9}},
};

ModelConfig GptOssDefaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 8;
  model.head_dim = 64;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1e-5;
  model.rope_theta = 150000.0;
  // The class did not say the length at first, and meant this one.
  model.rope_scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 32, .original_length = 4096, .truncate = false};
  model.activation = ActivationKind::kClampedSwiGlu;
  model.bias = true;
  model.attention_sinks = true;
  model.sliding_window = 128;
  model.full_attention_period = 2;
  model.moe.router_bias = true;
  model.moe.aux_loss_coeff = 0.9;  // 0.001 from Transformers 5 on
  return model;
}

void ReadGptOss(ConfigFile& file, ModelConfig& model) {
  file.Nullable("head_dim", model.head_dim, kMaxHidden);
  if (file.IsNull("rope_scaling")) model.rope_scaling = {};
  file.Rope(model);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
  MoeConfig& moe = model.moe;
  moe.num_experts = 128;
  moe.router_topk = 4;
  file.Experts(moe);
  moe.ffn_hidden_size = model.ffn_hidden_size;
  if (file.version() >= 5) moe.aux_loss_coeff = 0.001;
  file.object().Number("router_aux_loss_coef", moe.aux_loss_coeff, 0, 1e6);
}

nlohmann::json WriteGptOss(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "GptOssForCausalLM");
  config.erase("mlp_bias");
  config["swiglu_limit"] = 7.0;
  config["intermediate_size"] = model.moe.ffn_hidden_size;
  WriteWindow(model, config);
  config["num_local_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  return config;
}

}  // namespace

Family GptOssFamily() {
  const ModelConfig defaults = GptOssDefaults();
  return {.types = {"gpt_oss"},
          .defaults = defaults,
          .read = ReadGptOss,
          .write = WriteGptOss,
          .refused = {{"hidden_act", "silu", "another activation"},
                      {"swiglu_limit", 7.0, "another limit of the activation"},
                      {"attention_bias", true, "attention without biases"}},
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGptOssTensors}),
          .presets = {MakePresets("GPT-OSS", defaults, kGptOssPresets)}};
}

}  // namespace trimtab

#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kMixtralExperts[] = {
    {"decoder.layers.*.mlp.router", {"model.layers.*.block_sparse_moe.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1",
     {"model.layers.*.block_sparse_moe.experts.*.w1",
      "model.layers.*.block_sparse_moe.experts.*.w3"},
     kExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2",
     {"model.layers.*.block_sparse_moe.experts.*.w2"},
     kExperts},
};

constexpr MoePresetRow kMixtralPresets[] = {
    {{"mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, false, 1e-5, 1e6}, {8, 2, 14336, 0.02}},
    {{"mixtral-8x22b", 56, 6144, 48, 8, 16384, 32000, 65536, false, 1e-5, 1e6}, {8, 2, 16384}},
};

ModelConfig MixtralDefaults() {
  ModelConfig model = LlamaDefaults();
  model.num_kv_heads = 8;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1e-5;
  model.rope_theta = 1e6;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

void ReadMixtral(ConfigFile& file, ModelConfig& model) {
  MistralFamily().read(file, model);
  MoeConfig& moe = model.moe;
  moe.num_experts = 8;
  file.Experts(moe);
  moe.ffn_hidden_size = model.ffn_hidden_size;
  file.object().Number("router_aux_loss_coef", moe.aux_loss_coeff, 0, 1e6);
}

nlohmann::json WriteMixtral(const ModelConfig& model) {
  nlohmann::json config = MistralFamily().write(model);
  config["architectures"] = {"MixtralForCausalLM"};
  config["intermediate_size"] = model.moe.ffn_hidden_size;
  config["num_local_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  return config;
}

}  // namespace

Family MixtralFamily() {
  const ModelConfig defaults = MixtralDefaults();
  return {.types = {"mixtral"},
          .defaults = defaults,
          .read = ReadMixtral,
          .write = WriteMixtral,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kMixtralExperts}, kFusedExperts),
          .presets = {MakePresets("Mixtral", defaults, kMixtralPresets)}};
}

}  // namespace trimtab

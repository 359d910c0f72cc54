#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/qwen.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kQwen2SharedExpert[] = {
    {"decoder.layers.*.mlp.shared_experts.linear_fc1",
     {"model.layers.*.mlp.shared_expert.gate_proj", "model.layers.*.mlp.shared_expert.up_proj"},
     kStacked},
    {"decoder.layers.*.mlp.shared_experts.linear_fc2",
     {"model.layers.*.mlp.shared_expert.down_proj"}},
    {"decoder.layers.*.mlp.shared_experts.gate_weight",
     {"model.layers.*.mlp.shared_expert_gate.weight"}},
};

constexpr MoePresetRow kQwen2MoePresets[] = {
    {{"qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 5632, 151936, 8192, false, 1e-6, 1e6}, {60, 4, 1408}},
    {{"qwen2-57b-a14b", 28, 3584, 28, 4, 18944, 151936, 131072, false, 1e-6, 1e6}, {64, 8, 2560}},
};

ModelConfig Qwen2MoeDefaults() {
  ModelConfig model = Qwen2Family().defaults;
  model.num_kv_heads = 16;
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  model.moe.shared_expert_gate = true;
  return model;
}

void ReadQwen2Moe(ConfigFile& file, ModelConfig& model) {
  Qwen2Family().read(file, model);
  file.object().Boolean("qkv_bias", *model.qkv_bias);
  model.moe.num_experts = 60;
  model.moe.router_topk = 4;
  model.moe.ffn_hidden_size = 1408;
  model.moe.shared_ffn_hidden_size = 5632;
  file.object().Integer("shared_expert_intermediate_size", model.moe.shared_ffn_hidden_size, 1,
                        kMaxFfn);
  ReadQwenExperts(file, model);
}

nlohmann::json WriteQwen2Moe(const ModelConfig& model) {
  nlohmann::json config = Qwen2Family().write(model);
  config["architectures"] = {"Qwen2MoeForCausalLM"};
  WriteQwenExperts(model, config);
  config["qkv_bias"] = model.has_qkv_bias();
  config["shared_expert_intermediate_size"] = model.moe.shared_ffn_hidden_size;
  return config;
}

}  // namespace

Family Qwen2MoeFamily() {
  const ModelConfig defaults = Qwen2MoeDefaults();
  return {.types = {"qwen2_moe"},
          .defaults = defaults,
          .read = ReadQwen2Moe,
          .write = WriteQwen2Moe,
          .tensors = LlamaLikeTensors(
              {kLlamaTensors, kLlamaNorms, kGateAndUp, kExpertsByNumber, kQwen2SharedExpert},
              kFusedExperts),
          .presets = {MakePresets("Qwen2-MoE", defaults, kQwen2MoePresets, [](ModelConfig& model) {
            model.moe.shared_ffn_hidden_size =
                model.moe.ffn_hidden_size * (model.num_layers == 24 ? 4 : 8);
          })}};
}

}  // namespace trimtab

#include "engine/families/llama_like.h"
#include "engine/families/qwen.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr MoePresetRow kQwen3MoePresets[] = {
    {{"qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936, 40960, false, 1e-6, 1e6, 128}, {128, 8, 768}},
    {{"qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 151936, 40960, false, 1e-6, 1e6, 128},
     {128, 8, 1536}},
};

ModelConfig Qwen3MoeDefaults() {
  ModelConfig model = Qwen3Family().defaults;
  model.num_kv_heads = 4;
  model.head_dim = 0;  // its class has no such key, and takes C / H without one
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

void ReadQwen3Moe(ConfigFile& file, ModelConfig& model) {
  Qwen3Family().read(file, model);
  model.moe.num_experts = 128;
  model.moe.router_topk = 8;
  model.moe.ffn_hidden_size = 768;
  ReadQwenExperts(file, model);
}

nlohmann::json WriteQwen3Moe(const ModelConfig& model) {
  nlohmann::json config = WriteQwen(model, "Qwen3MoeForCausalLM");
  WriteQwenExperts(model, config);
  return config;
}

}  // namespace

Family Qwen3MoeFamily() {
  const ModelConfig defaults = Qwen3MoeDefaults();
  return {.types = {"qwen3_moe"},
          .defaults = defaults,
          .read = ReadQwen3Moe,
          .write = WriteQwen3Moe,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kGateAndUp, kExpertsByNumber},
                                      kFusedExperts),
          .presets = {MakePresets("Qwen3", defaults, kQwen3MoePresets,
                                  [](ModelConfig& model) { model.moe.norm_topk = true; })}};
}

}  // namespace trimtab

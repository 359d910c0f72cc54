#include "engine/families/qwen.h"

#include "engine/base/error.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"

namespace trimtab {

void ReadQwen(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  bool windows = false;
  file.object().Boolean("use_sliding_window", windows);
  if (!windows) return file.PassOver("sliding_window");
  int64_t first = 28;
  file.object().Integer("max_window_layers", first, 0, kMaxLayers);
  if (first >= model.num_layers) return file.PassOver("sliding_window");  // no layer has one
  if (first > 0) {
    throw InputError(fmt::format(
        "{}: a sliding window in the last layers only is not supported; expected 0 or at least {}, "
        "the number of layers, got {}",
        file.object().Where("max_window_layers"), model.num_layers, first));
  }
  file.object().Integer("sliding_window", model.sliding_window, 1, kMaxSequence, Need::kRequired);
}

void ReadQwenExperts(ConfigFile& file, ModelConfig& model) {
  StrictObject& object = file.object();
  MoeConfig& moe = model.moe;
  file.Experts(moe);
  object.Integer("moe_intermediate_size", moe.ffn_hidden_size, 1, kMaxFfn);
  object.Boolean("norm_topk_prob", moe.norm_topk);
  object.Number("router_aux_loss_coef", moe.aux_loss_coeff, 0, 1e6);
  // Layers step - 1, 2 step - 1, ... have experts.
  object.Integer("decoder_sparse_step", moe.layer_freq, 1, kMaxLayers);
  moe.layer_offset = moe.layer_freq - 1;
  // Layers without experts must be the first ones.
  const nlohmann::json* dense = object.Find("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) object.Refuse("mlp_only_layers", "an array of numbers of layers");
  nlohmann::json first = nlohmann::json::array();
  while (first.size() < dense->size()) first.push_back(first.size());
  file.RequireNeutral("mlp_only_layers", first, "a list of other layers than the first");
  moe.first_k_dense = static_cast<int64_t>(dense->size());
}

nlohmann::json WriteQwen(const ModelConfig& model, const char* architecture) {
  nlohmann::json config = WriteLlamaLike(model, architecture);
  config.erase("mlp_bias");
  config["use_sliding_window"] = model.sliding_window > 0;
  if (model.sliding_window > 0) {
    config["sliding_window"] = model.sliding_window;
    config["max_window_layers"] = 0;
  }
  return config;
}

void WriteQwenExperts(const ModelConfig& model, nlohmann::json& config) {
  config["num_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["moe_intermediate_size"] = model.moe.ffn_hidden_size;
  config["norm_topk_prob"] = model.moe.norm_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  config["decoder_sparse_step"] = model.moe.layer_freq;
  config["mlp_only_layers"] = nlohmann::json::array();
  for (int64_t i = 0; i < model.moe.first_k_dense; ++i) config["mlp_only_layers"].push_back(i);
}

}  // namespace trimtab

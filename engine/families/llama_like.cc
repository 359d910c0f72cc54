#include "engine/families/llama_like.h"

#include <cmath>
#include <utility>

namespace trimtab {
namespace {

constexpr std::string_view kLlamaBuffers[] = {"model.layers.*.self_attn.rotary_emb.inv_freq"};

nlohmann::json RopeScalingOf(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return nullptr;
    case RopeScalingKind::kLinear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScalingKind::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"original_max_position_embeddings", scaling.original_length},
              {"low_freq_factor", scaling.low_frequency},
              {"high_freq_factor", scaling.high_frequency}};
    case RopeScalingKind::kYarn:
      break;
  }
  nlohmann::json yarn = {{"rope_type", "yarn"},
                         {"factor", scaling.factor},
                         {"original_max_position_embeddings", scaling.original_length},
                         {"beta_fast", scaling.beta_fast},
                         {"beta_slow", scaling.beta_slow},
                         {"truncate", scaling.truncate}};
  if (scaling.attention_factor > 0) yarn["attention_factor"] = scaling.attention_factor;
  return yarn;
}

}  // namespace

ModelConfig LlamaDefaults() {
  ModelConfig model;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.norm_epsilon = 1e-6;
  model.bias = false;
  model.tied_embeddings = false;
  return model;
}

nlohmann::json WriteLlamaLike(const ModelConfig& model, const char* architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"num_key_value_heads", model.num_kv_heads},
          {"head_dim", model.head_size()},
          {"intermediate_size", model.ffn_hidden_size},
          {"max_position_embeddings", model.max_sequence_length},
          {"hidden_act", "silu"},
          {"rms_norm_eps", model.norm_epsilon},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", RopeScalingOf(model.rope_scaling)},
          {"attention_bias", model.bias},
          {"mlp_bias", model.has_mlp_bias()}};
}

void WriteWindow(const ModelConfig& model, nlohmann::json& config) {
  config["sliding_window"] = nullptr;
  if (model.sliding_window > 0) config["sliding_window"] = model.sliding_window;
}

void WriteLayerTypes(const ModelConfig& model, nlohmann::json& config) {
  nlohmann::json types = nlohmann::json::array();
  for (int64_t i = 0; i < model.num_layers; ++i) {
    types.push_back(model.window(i) > 0 ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

void WriteGemmaScores(const ModelConfig& model, nlohmann::json& config) {
  const double scale = model.attention_scale > 0
                           ? model.attention_scale
                           : 1.0 / std::sqrt(static_cast<double>(model.head_size()));
  // A whole number in all files; its root loses the last bits.
  config["query_pre_attn_scalar"] = std::round(1.0 / (scale * scale) * 1e6) / 1e6;
  const auto put = [&config](const char* key, double value) {
    config[key] = nullptr;
    if (value > 0) config[key] = value;
  };
  put("attn_logit_softcapping", model.attention_soft_cap);
  put("final_logit_softcapping", model.logit_soft_cap);
}

TensorNames LlamaLikeTensors(std::vector<TensorRows> rows, TensorRows fused) {
  return {.prefix = "model.", .rows = std::move(rows), .buffers = kLlamaBuffers, .fused = fused};
}

}  // namespace trimtab

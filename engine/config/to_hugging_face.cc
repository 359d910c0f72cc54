#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/config/hugging_face.h"
#include "engine/config/model_differences.h"

namespace trimtab {
namespace {

using nlohmann::json;

// Each writes what its model type can say; ToHuggingFace looks whether that was all.

json Gpt2(const ModelConfig& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"n_positions", model.max_sequence_length},
          {"n_inner", model.ffn_hidden_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

json GptJ(const ModelConfig& model) {
  json config = Gpt2(model);
  config["architectures"] = {"GPTJForCausalLM"};
  config["model_type"] = "gptj";
  config["rotary_dim"] = model.rotary_size();
  return config;
}

json GptNeox(const ModelConfig& model) {
  const bool tanh = model.activation == ActivationKind::kGelu;
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"model_type", "gpt_neox"},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"max_position_embeddings", model.max_sequence_length},
          {"intermediate_size", model.ffn_hidden_size},
          {"hidden_act", tanh ? "gelu_fast" : "gelu"},
          {"layer_norm_eps", model.norm_epsilon},
          {"rotary_pct", model.rotary_fraction},
          {"rotary_emb_base", model.rope_theta},
          {"use_parallel_residual", model.block == BlockKind::kParallel},
          {"attention_bias", model.bias}};
}

json Opt(const ModelConfig& model) {
  return {{"architectures", {"OPTForCausalLM"}},
          {"model_type", "opt"},
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

json Bloom(const ModelConfig& model) {
  return {{"architectures", {"BloomForCausalLM"}},
          {"model_type", "bloom"},
          {"hidden_size", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"seq_length", model.max_sequence_length},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

json Mpt(const ModelConfig& model) {
  json config = {{"architectures", {"MPTForCausalLM"}},
                 {"model_type", "mpt"},
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

json Falcon(const ModelConfig& model) {
  const bool multi_query = model.num_kv_heads == 1;
  json config = {{"architectures", {"FalconForCausalLM"}},
                 {"model_type", "falcon"},
                 {"hidden_size", model.hidden_size},
                 {"num_hidden_layers", model.num_layers},
                 {"num_attention_heads", model.num_heads},
                 {"num_kv_heads", model.num_kv_heads},
                 {"max_position_embeddings", model.max_sequence_length},
                 {"ffn_hidden_size", model.ffn_hidden_size},
                 {"activation", "gelu"},
                 {"layer_norm_epsilon", model.norm_epsilon},
                 {"rope_theta", model.rope_theta},
                 {"bias", model.bias},
                 {"alibi", false},
                 {"multi_query", multi_query},
                 {"new_decoder_architecture", false},
                 {"parallel_attn", model.block != BlockKind::kSequential}};
  if (model.block == BlockKind::kParallel ||
      (model.block == BlockKind::kParallelShared && !multi_query)) {
    config["new_decoder_architecture"] = true;
    config["num_ln_in_parallel_attn"] = model.block == BlockKind::kParallel ? 2 : 1;
  }
  return config;
}

json RopeScalingOf(const RopeScaling& scaling) {
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
  json yarn = {{"rope_type", "yarn"},
               {"factor", scaling.factor},
               {"original_max_position_embeddings", scaling.original_length},
               {"beta_fast", scaling.beta_fast},
               {"beta_slow", scaling.beta_slow},
               {"truncate", scaling.truncate}};
  if (scaling.attention_factor > 0) yarn["attention_factor"] = scaling.attention_factor;
  return yarn;
}

json Llama(const ModelConfig& model) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
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

/// Llama's keys under another name.
json LikeLlama(const ModelConfig& model, const char* type, const char* architecture) {
  json config = Llama(model);
  config["architectures"] = {architecture};
  config["model_type"] = type;
  return config;
}

json Mistral(const ModelConfig& model) {
  json config = LikeLlama(model, "mistral", "MistralForCausalLM");
  for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  config["sliding_window"] = nullptr;
  if (model.sliding_window > 0) config["sliding_window"] = model.sliding_window;
  return config;
}

json Qwen(const ModelConfig& model, const char* type, const char* architecture) {
  json config = LikeLlama(model, type, architecture);
  config.erase("mlp_bias");
  config["use_sliding_window"] = model.sliding_window > 0;
  if (model.sliding_window > 0) {
    config["sliding_window"] = model.sliding_window;
    config["max_window_layers"] = 0;
  }
  return config;
}

json Qwen2(const ModelConfig& model) {
  json config = Qwen(model, "qwen2", "Qwen2ForCausalLM");
  config.erase("attention_bias");
  return config;
}
json Qwen3(const ModelConfig& model) { return Qwen(model, "qwen3", "Qwen3ForCausalLM"); }

json Nemotron(const ModelConfig& model) {
  json config = LikeLlama(model, "nemotron", "NemotronForCausalLM");
  config.erase("rms_norm_eps");
  config["norm_eps"] = model.norm_epsilon;
  config["hidden_act"] = "relu2";
  config["partial_rotary_factor"] = model.rotary_fraction;
  return config;
}

json Gemma2(const ModelConfig& model) {
  json config = LikeLlama(model, "gemma2", "Gemma2ForCausalLM");
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  const double scale = model.attention_scale > 0
                           ? model.attention_scale
                           : 1.0 / std::sqrt(static_cast<double>(model.head_size()));
  // A whole number in all files; its root loses the last bits.
  config["query_pre_attn_scalar"] = std::round(1.0 / (scale * scale) * 1e6) / 1e6;
  const auto put = [&config](const char* key, auto value) {
    config[key] = nullptr;
    if (value > 0) config[key] = value;
  };
  put("attn_logit_softcapping", model.attention_soft_cap);
  put("final_logit_softcapping", model.logit_soft_cap);
  put("sliding_window", model.sliding_window);
  return config;
}

json GlmOfType(const ModelConfig& model, const char* type, const char* architecture) {
  json config = LikeLlama(model, type, architecture);
  config.erase("mlp_bias");
  config["attention_bias"] = model.has_qkv_bias();
  config["partial_rotary_factor"] = model.rotary_fraction;
  return config;
}

json Glm(const ModelConfig& model) { return GlmOfType(model, "glm", "GlmForCausalLM"); }
json Glm4(const ModelConfig& model) { return GlmOfType(model, "glm4", "Glm4ForCausalLM"); }

json Mixtral(const ModelConfig& model) {
  json config = Mistral(model);
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  config["intermediate_size"] = model.moe.ffn_hidden_size;
  config["num_local_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  return config;
}

json Qwen3Moe(const ModelConfig& model) {
  json config = Qwen(model, "qwen3_moe", "Qwen3MoeForCausalLM");
  config["num_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["moe_intermediate_size"] = model.moe.ffn_hidden_size;
  config["norm_topk_prob"] = model.moe.norm_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  config["decoder_sparse_step"] = model.moe.layer_freq;
  config["mlp_only_layers"] = json::array();
  for (int64_t i = 0; i < model.moe.first_k_dense; ++i) config["mlp_only_layers"].push_back(i);
  return config;
}

json Qwen2Moe(const ModelConfig& model) {
  json config = Qwen3Moe(model);
  config["architectures"] = {"Qwen2MoeForCausalLM"};
  config["model_type"] = "qwen2_moe";
  config.erase("attention_bias");
  config["qkv_bias"] = model.has_qkv_bias();
  config["shared_expert_intermediate_size"] = model.moe.shared_ffn_hidden_size;
  return config;
}

/// DeepSeek's two exponents, which are equal: what makes the model's scale of scores.
double ScaleExponent(const ModelConfig& model) {
  const double m =
      std::sqrt(model.attention_scale * std::sqrt(static_cast<double>(model.head_size())));
  // Three digits in all files; the logarithm loses the last bits.
  return std::round((m - 1.0) / (0.1 * std::log(model.rope_scaling.factor)) * 1e6) / 1e6;
}

json DeepSeek(const ModelConfig& model, const char* type, const char* architecture) {
  json config = LikeLlama(model, type, architecture);
  for (const char* key : {"head_dim", "mlp_bias"}) config.erase(key);
  const json latent = ToJson(model.latent);
  config["q_lora_rank"] = nullptr;
  if (!latent.is_null()) config.update(latent);
  if (model.rope_scaling.kind == RopeScalingKind::kYarn && model.attention_scale > 0) {
    config["rope_scaling"]["mscale"] = ScaleExponent(model);
    config["rope_scaling"]["mscale_all_dim"] = ScaleExponent(model);
    config["rope_scaling"].erase("attention_factor");
  }
  const MoeConfig& moe = model.moe;
  config["n_routed_experts"] = moe.num_experts;
  config["num_experts_per_tok"] = moe.router_topk;
  config["moe_intermediate_size"] = moe.ffn_hidden_size;
  config["n_shared_experts"] =
      moe.ffn_hidden_size == 0 ? 0 : moe.shared_ffn_hidden_size / moe.ffn_hidden_size;
  config["first_k_dense_replace"] = moe.first_k_dense;
  config["moe_layer_freq"] = moe.layer_freq;
  config["routed_scaling_factor"] = moe.topk_scaling_factor;
  config["aux_loss_alpha"] = moe.aux_loss_coeff;
  config["seq_aux"] = true;
  config["n_group"] = moe.num_groups;
  config["topk_group"] = moe.group_topk;
  config["norm_topk_prob"] = moe.norm_topk;
  return config;
}

json DeepSeekV2(const ModelConfig& model) {
  json config = DeepSeek(model, "deepseek_v2", "DeepseekV2ForCausalLM");
  config["scoring_func"] = "softmax";
  config["topk_method"] = model.moe.num_groups > 1 ? "group_limited_greedy" : "greedy";
  return config;
}

json DeepSeekV3(const ModelConfig& model) {
  json config = DeepSeek(model, "deepseek_v3", "DeepseekV3ForCausalLM");
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["num_nextn_predict_layers"] = model.mtp_modules;
  return config;
}

json GptOss(const ModelConfig& model) {
  json config = LikeLlama(model, "gpt_oss", "GptOssForCausalLM");
  config.erase("mlp_bias");
  config["swiglu_limit"] = 7.0;
  config["intermediate_size"] = model.moe.ffn_hidden_size;
  config["sliding_window"] = nullptr;
  if (model.sliding_window > 0) config["sliding_window"] = model.sliding_window;
  config["num_local_experts"] = model.moe.num_experts;
  config["num_experts_per_tok"] = model.moe.router_topk;
  config["router_aux_loss_coef"] = model.moe.aux_loss_coeff;
  return config;
}

json Dbrx(const ModelConfig& model) {
  json config = {
      {"architectures", {"DbrxForCausalLM"}},
      {"model_type", "dbrx"},
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

constexpr json (*kWriters[])(const ModelConfig& model) = {
    Gpt2,     GptJ,     GptNeox,    Opt,        Bloom,  Mpt, Falcon, Llama,
    Mistral,  Qwen2,    Qwen3,      Nemotron,   Gemma2, Glm, Glm4,   Mixtral,
    Qwen3Moe, Qwen2Moe, DeepSeekV2, DeepSeekV3, GptOss, Dbrx};

/// In what the model that a config.json describes differs from `model`; nullopt where its type has
/// no such models.
std::optional<std::vector<ModelDifference>> Differences(const json& config,
                                                        const ModelConfig& model) {
  try {
    return DifferencesOf(ModelConfigFromHuggingFace(config, model.name), model);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

json ToHuggingFace(const ModelConfig& model) {
  std::string nearest;
  std::vector<ModelDifference> fewest;
  for (const auto write : kWriters) {
    json config = write(model);
    config["vocab_size"] = model.vocab_size;
    config["initializer_range"] = model.init_std;
    config["tie_word_embeddings"] = model.tied_embeddings;
    const auto differences = Differences(config, model);
    if (!differences) continue;
    if (differences->empty()) return config;
    if (!nearest.empty() && differences->size() >= fewest.size()) continue;
    nearest = config["model_type"].get<std::string>();
    fewest = *differences;
  }
  std::string why;
  for (const ModelDifference& each : fewest) {
    why +=
        fmt::format("{} {} is {}, not {}", why.empty() ? "; in the nearest, " + nearest + "," : ",",
                    each.name, each.found, each.expected);
  }
  throw InputError(
      fmt::format("model '{}': no model type of Hugging Face that is known here describes it{}",
                  model.name, why));
}

}  // namespace trimtab

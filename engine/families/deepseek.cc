// DeepSeek-V2 and V3.
#include <array>
#include <cmath>

#include "engine/config/model/model_limits.h"
#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

// Latent attention, in the place of Llama's.
constexpr TensorRow kDeepSeekTensors[] = {
    {"embedding.word_embeddings", {"model.embed_tokens"}},
    {"decoder.layers.*.self_attention.linear_q_proj", {"model.layers.*.self_attn.q_proj"}},
    {"decoder.layers.*.self_attention.linear_q_down_proj", {"model.layers.*.self_attn.q_a_proj"}},
    {"decoder.layers.*.self_attention.q_layernorm", {"model.layers.*.self_attn.q_a_layernorm"}},
    {"decoder.layers.*.self_attention.linear_q_up_proj", {"model.layers.*.self_attn.q_b_proj"}},
    {"decoder.layers.*.self_attention.linear_kv_down_proj",
     {"model.layers.*.self_attn.kv_a_proj_with_mqa"}},
    {"decoder.layers.*.self_attention.kv_layernorm", {"model.layers.*.self_attn.kv_a_layernorm"}},
    {"decoder.layers.*.self_attention.linear_kv_up_proj", {"model.layers.*.self_attn.kv_b_proj"}},
    {"decoder.layers.*.self_attention.linear_proj", {"model.layers.*.self_attn.o_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", {"model.layers.*.mlp.down_proj"}},
    {"decoder.layers.*.mlp.shared_experts.linear_fc1",
     {"model.layers.*.mlp.shared_experts.gate_proj", "model.layers.*.mlp.shared_experts.up_proj"},
     kStacked},
    {"decoder.layers.*.mlp.shared_experts.linear_fc2",
     {"model.layers.*.mlp.shared_experts.down_proj"}},
    {"decoder.layers.*.mlp.router.expert_bias",
     {"model.layers.*.mlp.gate.e_score_correction_bias"}},
    {"decoder.final_layernorm", {"model.norm"}},
    {"output_layer", {"lm_head"}},
};

constexpr MoePresetRow kDeepSeekV2LitePresets[] = {
    {{"deepseek-v2-lite", 27, 2048, 16, 16, 10944, 102400, 163840, false, 1e-6}, {64, 6, 1408}},
};
constexpr MoePresetRow kDeepSeekV2Presets[] = {
    {{"deepseek-v2", 60, 5120, 128, 128, 12288, 102400, 163840, false, 1e-6}, {160, 6, 1536}},
};
constexpr MoePresetRow kDeepSeekV3Presets[] = {
    {{"deepseek-v3", 61, 7168, 128, 128, 18432, 129280, 163840, false, 1e-6},
     {256, 8, 2048, 0.0001}},
    {{"deepseek-r1", 61, 7168, 128, 128, 18432, 129280, 163840, false, 1e-6},
     {256, 8, 2048, 0.0001}},
};

ModelConfig DeepSeekV2Defaults() {
  ModelConfig model = LlamaDefaults();
  model.rotary_interleaved = true;
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

ModelConfig DeepSeekV3Defaults() {
  ModelConfig model = LlamaDefaults();
  // Key/value heads stay those of the heads, though its class says 128: latent attention has no
  // others.
  model.max_sequence_length = 4096;
  model.rotary_interleaved = true;
  model.moe.score = RouterScore::kSigmoid;
  model.moe.norm_topk = true;
  model.moe.group_score = GroupScore::kSumOfTopTwo;
  model.moe.expert_bias = true;
  model.moe.first_k_dense = 3;
  model.moe.num_groups = 8;
  model.moe.group_topk = 4;
  model.moe.topk_scaling_factor = 2.5;
  model.moe.aux_loss_coeff = 0.0001;  // the report's (arXiv:2412.19437); its class has no such key
  return model;
}

/// Returns what scores are multiplied by where yarn has scaled the positions: m^2 / sqrt(D), m =
/// 0.1 * exponent * ln(factor) + 1, for cos and sin are left as they are (mscale_all_dim).
double LatentScale(const ModelConfig& model, double exponent) {
  const double m = 0.1 * exponent * std::log(model.rope_scaling.factor) + 1.0;
  return m * m / std::sqrt(static_cast<double>(model.head_size()));
}

void ReadLatentAttention(ConfigFile& file, ModelConfig& model) {
  StrictObject& object = file.object();
  LatentConfig& latent = model.latent;
  latent = {.q_lora_rank = 1536,
            .kv_lora_rank = 512,
            .qk_nope_head_dim = 128,
            .qk_rope_head_dim = 64,
            .v_head_dim = 128};
  file.Nullable("q_lora_rank", latent.q_lora_rank, kMaxHidden);
  object.Integer("kv_lora_rank", latent.kv_lora_rank, 1, kMaxHidden);
  object.Integer("qk_nope_head_dim", latent.qk_nope_head_dim, 1, kMaxHidden);
  object.Integer("qk_rope_head_dim", latent.qk_rope_head_dim, 1, kMaxHidden);
  object.Integer("v_head_dim", latent.v_head_dim, 1, kMaxHidden);
  model.head_dim = 0;  // newer files call what turns so
  file.Rope(model);
  if (model.rope_scaling.kind != RopeScalingKind::kYarn) return;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    double exponent = 0;
    file.Within(key).object().Number("mscale_all_dim", exponent, 0, 1e6);
    if (exponent > 0) model.attention_scale = LatentScale(model, exponent);
  }
}

void ReadDeepSeekExperts(ConfigFile& file, int64_t usual_shared, ModelConfig& model) {
  StrictObject& object = file.object();
  MoeConfig& moe = model.moe;
  object.Integer("moe_intermediate_size", moe.ffn_hidden_size, 1, kMaxFfn);
  int64_t shared = file.IsNull("n_shared_experts") ? 0 : usual_shared;
  object.Integer("n_shared_experts", shared, 0, kMaxExperts);
  moe.shared_ffn_hidden_size = shared * moe.ffn_hidden_size;
  object.Integer("first_k_dense_replace", moe.first_k_dense, 0, kMaxLayers);
  object.Integer("moe_layer_freq", moe.layer_freq, 1, kMaxLayers);
  object.Number("routed_scaling_factor", moe.topk_scaling_factor, 1e-6, 1e6);
  object.Number("aux_loss_alpha", moe.aux_loss_coeff, 0, 1e6);
}

// Version 2 reads none of them unless it chooses by groups.
void ReadGroups(ConfigFile& file, ModelConfig& model) {
  file.object().Integer("n_group", model.moe.num_groups, 1, kMaxExpertGroups);
  file.object().Integer("topk_group", model.moe.group_topk, 1, kMaxExpertGroups);
}

void ReadDeepSeekV2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  ReadLatentAttention(file, model);
  model.moe.num_experts = 64;
  model.moe.ffn_hidden_size = 1407;
  file.Experts(model.moe, Need::kRequired);  // its class has no number of chosen ones
  ReadDeepSeekExperts(file, /*usual_shared=*/2, model);
  std::string method = "greedy";
  file.object().Choice("topk_method", method,
                       std::array<std::string, 2>{"greedy", "group_limited_greedy"});
  if (method == "group_limited_greedy") return ReadGroups(file, model);
  for (const char* key : {"n_group", "topk_group"}) file.PassOver(key);
}

void ReadDeepSeekV3(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  ReadLatentAttention(file, model);
  model.moe.num_experts = 256;
  model.moe.router_topk = 8;
  model.moe.ffn_hidden_size = 2048;
  file.Experts(model.moe);
  ReadDeepSeekExperts(file, /*usual_shared=*/1, model);
  ReadGroups(file, model);
  file.object().Boolean("norm_topk_prob", model.moe.norm_topk);
  file.object().Integer("num_nextn_predict_layers", model.mtp_modules, 0, kMaxLayers);
}

/// DeepSeek's two exponents, which are equal: what makes the model's scale of scores.
double ScaleExponent(const ModelConfig& model) {
  const double m =
      std::sqrt(model.attention_scale * std::sqrt(static_cast<double>(model.head_size())));
  // Three digits in all files; the logarithm loses the last bits.
  return std::round((m - 1.0) / (0.1 * std::log(model.rope_scaling.factor)) * 1e6) / 1e6;
}

nlohmann::json WriteDeepSeek(const ModelConfig& model, const char* architecture) {
  nlohmann::json config = WriteLlamaLike(model, architecture);
  for (const char* key : {"head_dim", "mlp_bias"}) config.erase(key);
  const nlohmann::json latent = ToJson(model.latent);
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

nlohmann::json WriteDeepSeekV2(const ModelConfig& model) {
  nlohmann::json config = WriteDeepSeek(model, "DeepseekV2ForCausalLM");
  config["scoring_func"] = "softmax";
  config["topk_method"] = model.moe.num_groups > 1 ? "group_limited_greedy" : "greedy";
  return config;
}

nlohmann::json WriteDeepSeekV3(const ModelConfig& model) {
  nlohmann::json config = WriteDeepSeek(model, "DeepseekV3ForCausalLM");
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["num_nextn_predict_layers"] = model.mtp_modules;
  return config;
}

/// Sets what presets have in common beside their defaults.
void MakeLatent(int64_t query_rank, double scale_exponent, ModelConfig& model) {
  model.latent = {.q_lora_rank = query_rank,
                  .kv_lora_rank = 512,
                  .qk_nope_head_dim = 128,
                  .qk_rope_head_dim = 64,
                  .v_head_dim = 128};
  model.rope_scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 40, .original_length = 4096, .attention_factor = 1};
  model.attention_scale = LatentScale(model, scale_exponent);
}

std::vector<RefusedKey> DeepSeekRefused(std::vector<RefusedKey> more) {
  std::vector<RefusedKey> refused = {
      {"attention_bias", false, "a bias in attention"},
      {"rope_interleave", true, "turning halves of what turns"},
      {"rms_norm_eps", 1e-6, "an epsilon that compressed vectors do not share"},
      {"seq_aux", true, "a loss over all sequences that balances experts"}};
  refused.insert(refused.end(), more.begin(), more.end());
  return refused;
}

TensorNames DeepSeekTensorNames() {
  return LlamaLikeTensors({kDeepSeekTensors, kLlamaNorms, kGateAndUp, kExpertsByNumber},
                          kFusedExperts);
}

}  // namespace

Family DeepSeekV2Family() {
  const ModelConfig defaults = DeepSeekV2Defaults();
  return {.types = {"deepseek_v2"},
          .defaults = defaults,
          .read = ReadDeepSeekV2,
          .write = WriteDeepSeekV2,
          .refused = DeepSeekRefused({{"scoring_func", "softmax", "another score"},
                                      {"norm_topk_prob", false, "weights divided by their sum"}}),
          .tensors = DeepSeekTensorNames(),
          .presets = {MakePresets("DeepSeek", defaults, kDeepSeekV2LitePresets,
                                  [](ModelConfig& model) {
                                    MakeLatent(0, 0.707, model);
                                    model.moe.shared_ffn_hidden_size =
                                        2 * model.moe.ffn_hidden_size;
                                    model.moe.first_k_dense = 1;
                                  }),
                      MakePresets("DeepSeek", defaults, kDeepSeekV2Presets, [](ModelConfig& model) {
                        MakeLatent(1536, 0.707, model);
                        model.moe.shared_ffn_hidden_size = 2 * model.moe.ffn_hidden_size;
                        model.moe.first_k_dense = 1;
                        model.moe.num_groups = 8;
                        model.moe.group_topk = 3;
                        model.moe.topk_scaling_factor = 16;
                      })}};
}

Family DeepSeekV3Family() {
  const ModelConfig defaults = DeepSeekV3Defaults();
  return {.types = {"deepseek_v3"},
          .defaults = defaults,
          .read = ReadDeepSeekV3,
          .write = WriteDeepSeekV3,
          .refused = DeepSeekRefused({{"scoring_func", "sigmoid", "another score"},
                                      {"topk_method", "noaux_tc", "another choice of experts"}}),
          .tensors = DeepSeekTensorNames(),
          .presets = {MakePresets("DeepSeek", defaults, kDeepSeekV3Presets, [](ModelConfig& model) {
            MakeLatent(1536, 1, model);
            model.moe.shared_ffn_hidden_size = model.moe.ffn_hidden_size;
            model.mtp_modules = 1;
          })}};
}

}  // namespace trimtab

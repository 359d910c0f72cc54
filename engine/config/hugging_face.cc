#include "engine/config/hugging_face.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/hugging_face_keys.h"
#include "engine/config/model_families.h"
#include "engine/config/model_limits.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

// What the readers of each model type find beside the sizes, and what a missing key stands for
// where the family does not say; facts from configuration_TYPE.py and modeling_TYPE.py of
// Transformers.

void ReadGpt2(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
  file.RequireNeutral("scale_attn_weights", true, "unscaled attention");
  file.RequireNeutral("scale_attn_by_inverse_layer_idx", false,
                      "attention scaled by the layer index");
  file.RequireNeutral("add_cross_attention", false, "cross attention");
}

void ReadGptJ(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
  int64_t rotary_dim = std::min<int64_t>(64, model.head_size());
  file.Nullable("rotary_dim", rotary_dim, model.head_size());
  if (rotary_dim < 2) {  // null is as wide as the model there, which no head is
    throw InputError(fmt::format("{}: expected an integer from 2 to {}",
                                 file.object().Where("rotary_dim"), model.head_size()));
  }
  model.rotary_fraction = static_cast<double>(rotary_dim) / static_cast<double>(model.head_size());
}

void ReadGptNeox(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "gelu", model);
  file.Rope(model);
  bool parallel = true;
  file.object().Boolean("use_parallel_residual", parallel);
  if (!parallel) model.block = BlockKind::kSequential;
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = true;
}

void ReadOpt(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "relu", model);
  file.RequireNeutral("layer_norm_elementwise_affine", true, "a norm without weights");
  StrictObject& object = file.object();
  bool before = true;
  object.Boolean("do_layer_norm_before", before);
  if (!before) model.block = BlockKind::kPostNorm;
  bool removed = false;
  object.Boolean("_remove_final_layer_norm", removed);
  model.final_norm = before && !removed;
  object.Integer("word_embed_proj_dim", model.embedding_dim, 1, kMaxHidden);
  object.Boolean("enable_bias", model.bias);
  object.Number("init_std", model.init_std, 0.0, 10.0);
}

void ReadBloom(ConfigFile& file, ModelConfig& model) {
  model.ffn_hidden_size = 4 * model.hidden_size;  // n_inner means nothing there
  file.RequireNeutral("apply_residual_connection_post_layernorm", false,
                      "a residual stream of normed values");
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

void ReadFalcon(ConfigFile& file, ModelConfig& model) {
  StrictObject& object = file.object();
  file.Activation("activation", "gelu", model);
  file.Rope(model);
  file.RequireNeutral("alibi", false, "ALiBi, which Falcon scales in its own way,");
  object.Boolean("bias", model.bias);
  // RefinedWeb, the first name of the 40B model, stands for the new architecture itself.
  bool new_architecture = file.type() == "RefinedWeb";
  object.Boolean("new_decoder_architecture", new_architecture);
  bool multi_query = true;
  object.Boolean("multi_query", multi_query);
  bool parallel = true;
  object.Boolean("parallel_attn", parallel);
  const int64_t listed_kv_heads = model.num_kv_heads;
  int64_t norms = new_architecture ? 2 : 1;
  if (new_architecture) {
    object.Integer("num_ln_in_parallel_attn", norms, 1, 2);
    parallel = true;
  } else {
    file.RequireNeutral("num_ln_in_parallel_attn", 1, "a second norm in the old architecture");
  }
  // The 7B file lists 71 key/value heads, and has one.
  model.num_kv_heads = new_architecture ? listed_kv_heads : multi_query ? 1 : listed_kv_heads;
  model.block = !parallel    ? BlockKind::kSequential
                : norms == 2 ? BlockKind::kParallel
                             : BlockKind::kParallelShared;
}

void ReadNemotron(ConfigFile& file, ModelConfig& model) {
  model.init_std = 0.0134;  // here and not in the family, whose presets have the usual one
  file.object().Number("initializer_range", model.init_std, 0.0, 10.0);
  file.Activation("hidden_act", "relu2", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.object().Boolean("mlp_bias", *model.mlp_bias);
}

void ReadLlama(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.object().Boolean("mlp_bias", *model.mlp_bias);
}

void ReadMistral(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
}

// What all versions of Qwen share.
void ReadWindows(ConfigFile& file, ModelConfig& model) {
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

void ReadQwen2(ConfigFile& file, ModelConfig& model) {
  ReadWindows(file, model);
  for (const char* key : {"attention_bias", "mlp_bias"}) file.PassOver(key);  // they are fixed
}

void ReadQwen3(ConfigFile& file, ModelConfig& model) {
  ReadWindows(file, model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.PassOver("mlp_bias");
}

void ReadGemma2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_activation", "gelu_pytorch_tanh", model);
  file.PassOver("hidden_act");
  file.Rope(model);
  file.RequireNeutral("attention_bias", false, "a bias in attention");
  double scalar = 256;
  file.object().Number("query_pre_attn_scalar", scalar, 1e-6, 1e6);
  model.attention_scale = 1.0 / std::sqrt(scalar);
  file.Nullable("attn_logit_softcapping", model.attention_soft_cap);
  file.Nullable("final_logit_softcapping", model.logit_soft_cap);
  file.Nullable("sliding_window", model.sliding_window, kMaxSequence);
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
}

void ReadGlm(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", *model.qkv_bias);
}

void ReadMixtral(ConfigFile& file, ModelConfig& model) {
  ReadMistral(file, model);
  MoeConfig& moe = model.moe;
  moe.num_experts = 8;
  file.Experts(moe);
  moe.ffn_hidden_size = model.ffn_hidden_size;
  file.object().Number("router_aux_loss_coef", moe.aux_loss_coeff, 0, 1e6);
}

// What versions 2 and 3 call alike.
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

void ReadQwen3Moe(ConfigFile& file, ModelConfig& model) {
  ReadQwen3(file, model);
  model.moe.num_experts = 128;
  model.moe.router_topk = 8;
  model.moe.ffn_hidden_size = 768;
  ReadQwenExperts(file, model);
}

void ReadQwen2Moe(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  ReadQwen2(file, model);
  file.object().Boolean("qkv_bias", *model.qkv_bias);
  model.moe.num_experts = 60;
  model.moe.router_topk = 4;
  model.moe.ffn_hidden_size = 1408;
  model.moe.shared_ffn_hidden_size = 5632;
  file.object().Integer("shared_expert_intermediate_size", model.moe.shared_ffn_hidden_size, 1,
                        kMaxFfn);
  ReadQwenExperts(file, model);
}

// Of versions 2 and 3: latent attention.
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
  file.RequireNeutral("attention_bias", false, "a bias in attention");
  file.RequireNeutral("rope_interleave", true, "turning halves of what turns");
  file.RequireNeutral("rms_norm_eps", 1e-6, "an epsilon that compressed vectors do not share");
  file.Rope(model);
  if (model.rope_scaling.kind != RopeScalingKind::kYarn) return;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    double exponent = 0;
    file.Within(key).object().Number("mscale_all_dim", exponent, 0, 1e6);
    if (exponent > 0) model.attention_scale = LatentAttentionScale(model, exponent);
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
  file.RequireNeutral("seq_aux", true, "a loss over all sequences that balances experts");
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
  file.RequireNeutral("scoring_func", "softmax", "another score");
  file.RequireNeutral("norm_topk_prob", false, "weights divided by their sum");
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
  file.RequireNeutral("scoring_func", "sigmoid", "another score");
  file.RequireNeutral("topk_method", "noaux_tc", "another choice of experts");
  file.object().Integer("num_nextn_predict_layers", model.mtp_modules, 0, kMaxLayers);
}

void ReadGptOss(ConfigFile& file, ModelConfig& model) {
  file.RequireNeutral("hidden_act", "silu", "another activation");
  file.RequireNeutral("swiglu_limit", 7.0, "another limit of the activation");
  file.RequireNeutral("attention_bias", true, "attention without biases");
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

struct ModelType {
  const char* name;
  ModelConfig (*family)();
  void (*read)(ConfigFile& file, ModelConfig& model);
};
constexpr ModelType kTypes[] = {
    {"gpt2", Gpt2Family, ReadGpt2},
    {"gptj", GptJFamily, ReadGptJ},
    {"gpt_neox", GptNeoxFamily, ReadGptNeox},
    {"opt", OptFamily, ReadOpt},
    {"bloom", BloomFamily, ReadBloom},
    {"mpt", MptFamily, ReadMpt},
    {"falcon", FalconFamily, ReadFalcon},
    {"RefinedWeb", FalconFamily, ReadFalcon},
    {"RefinedWebModel", FalconFamily, ReadFalcon},
    {"nemotron", NemotronFamily, ReadNemotron},
    {"llama", LlamaFamily, ReadLlama},
    {"mistral", MistralFamily, ReadMistral},
    {"qwen2", Qwen2Family, ReadQwen2},
    {"qwen3", Qwen3Family, ReadQwen3},
    {"gemma2", Gemma2Family, ReadGemma2},
    {"glm", GlmFamily, ReadGlm},
    {"glm4", Glm4Family, ReadGlm},
    {"mixtral", MixtralFamily, ReadMixtral},
    {"qwen3_moe", Qwen3MoeFamily, ReadQwen3Moe},
    {"qwen2_moe", Qwen2MoeFamily, ReadQwen2Moe},
    {"deepseek_v2", DeepSeekV2Family, ReadDeepSeekV2},
    {"deepseek_v3", DeepSeekV3Family, ReadDeepSeekV3},
    {"gpt_oss", GptOssFamily, ReadGptOss},
    {"dbrx", DbrxFamily, ReadDbrx},
};

const ModelType& TypeOf(const StrictObject& object, const std::string& name) {
  std::string known;
  for (const ModelType& type : kTypes) {
    if (name == type.name) return type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  object.Refuse("model_type", "one of " + known);
}

}  // namespace

bool IsHuggingFaceConfig(const nlohmann::json& json) {
  return json.is_object() && (json.contains("model_type") || json.contains("architectures"));
}

ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where,
                                       std::vector<std::string>* notes) {
  ConfigFile file(json, where);
  const ModelType& type = TypeOf(file.object(), file.type());
  ModelConfig model = type.family();
  file.Sizes(model);
  type.read(file, model);
  file.RequireSizes(model);
  file.LayerTypes(model);
  file.Finish(model);
  if (notes != nullptr) *notes = file.Notes();
  Simplify(model);
  RequireConsistent(model, where);
  return model;
}

}  // namespace trimtab

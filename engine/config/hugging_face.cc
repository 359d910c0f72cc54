#include "engine/config/hugging_face.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/hugging_face_keys.h"
#include "engine/config/model_families.h"
#include "engine/config/model_limits.h"

namespace trimtab {
namespace {

// What the readers of each model type find beside the sizes; facts from configuration_TYPE.py and
// modeling_TYPE.py of Transformers.

void ReadGpt2(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
  file.RequireNeutral("scale_attn_weights", true, "unscaled attention");
  file.RequireNeutral("scale_attn_by_inverse_layer_idx", false,
                      "attention scaled by the layer index");
  file.RequireNeutral("add_cross_attention", false, "cross attention");
}

void ReadGptJ(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
  int64_t rotary_dim = 64;
  file.object().Integer("rotary_dim", rotary_dim, 2, model.head_size());
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
  file.RequireNeutral("do_layer_norm_before", true, "norms after attention and MLP");
  file.RequireNeutral("_remove_final_layer_norm", false, "a model without a final norm");
  file.RequireNeutral("layer_norm_elementwise_affine", true, "a norm without weights");
  file.RequireNeutral("word_embed_proj_dim", model.hidden_size,
                      "an embedding narrower than the model");
  file.object().Boolean("enable_bias", model.bias);
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
  }
  // The 7B file lists 71 key/value heads, and has one.
  model.num_kv_heads = new_architecture ? listed_kv_heads : multi_query ? 1 : listed_kv_heads;
  model.block = !parallel    ? BlockKind::kSequential
                : norms == 2 ? BlockKind::kParallel
                             : BlockKind::kParallelShared;
}

void ReadNemotron(ConfigFile& file, ModelConfig& model) {
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

void ReadQwen2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_act", "silu", model);
  file.Rope(model);
  bool windows = false;
  file.object().Boolean("use_sliding_window", windows);
  if (!windows) return;
  int64_t first = model.num_layers;
  file.object().Integer("max_window_layers", first, 0, kMaxLayers);
  if (first >= model.num_layers) return;  // no layer has one
  file.RequireNeutral("max_window_layers", 0, "a sliding window in the last layers only");
  file.object().Integer("sliding_window", model.sliding_window, 1, kMaxSequence, Need::kRequired);
}

void ReadQwen3(ConfigFile& file, ModelConfig& model) {
  ReadQwen2(file, model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
}

void ReadGemma2(ConfigFile& file, ModelConfig& model) {
  file.Activation("hidden_activation", "gelu_pytorch_tanh", model);
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
  bool bias = false;
  file.object().Boolean("attention_bias", bias);
  model.qkv_bias = bias;
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

ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where) {
  ConfigFile file(json, where);
  const ModelType& type = TypeOf(file.object(), file.type());
  ModelConfig model = type.family();
  file.Sizes(model);
  type.read(file, model);
  file.LayerTypes(model);
  Simplify(model);
  return model;
}

}  // namespace trimtab

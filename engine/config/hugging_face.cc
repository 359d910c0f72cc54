#include "engine/config/hugging_face.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/model_limits.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

/// A config.json as StrictObject reads it, without the keys that are null: there, null means "take
/// the default of the model type".
nlohmann::json WithoutNulls(const nlohmann::json& json) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

/// Refuses a feature: `key` may be missing or equal to `neutral`.
void RequireNeutral(StrictObject& object, const std::string& key, const nlohmann::json& neutral,
                    const std::string& feature) {
  const nlohmann::json* found = object.Find(key);
  if (found == nullptr || *found == neutral) return;
  throw InputError(fmt::format("{}: {} is not supported; expected {} or no such key, got {}",
                               object.Where(key), feature, neutral.dump(), DescribeJson(*found)));
}

void ReadGpt2(StrictObject& object, ModelConfig& model) {
  object.Integer("vocab_size", model.vocab_size, 1, kMaxVocab, Need::kRequired);
  object.Integer("n_embd", model.hidden_size, 1, kMaxHidden, Need::kRequired);
  object.Integer("n_layer", model.num_layers, 1, kMaxLayers, Need::kRequired);
  object.Integer("n_head", model.num_heads, 1, kMaxHeads, Need::kRequired);
  object.Integer("n_positions", model.max_sequence_length, 1, kMaxSequence, Need::kRequired);
  model.num_kv_heads = model.num_heads;
  model.ffn_hidden_size = 4 * model.hidden_size;
  object.Integer("n_inner", model.ffn_hidden_size, 1, kMaxFfn);
  object.Number("layer_norm_epsilon", model.norm_epsilon, 1e-30, 1.0);
  object.Boolean("tie_word_embeddings", model.tied_embeddings);
  std::string activation = "gelu_new";
  object.Text("activation_function", activation);
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    object.Refuse("activation_function", "gelu_new, the tanh approximation of GELU");
  }
  RequireNeutral(object, "scale_attn_weights", true, "unscaled attention");
  RequireNeutral(object, "scale_attn_by_inverse_layer_idx", false,
                 "attention scaled by the layer index");
  RequireNeutral(object, "add_cross_attention", false, "cross attention");
}

// The rotary base stands at the top level, or (from Transformers 5 on) in rope_parameters.
void ReadRope(StrictObject& object, ModelConfig& model) {
  const nlohmann::json* scaling = object.Find("rope_scaling");
  if (scaling != nullptr) {
    throw InputError(
        fmt::format("{}: scaled rotary positions are not supported; expected null, got {}",
                    object.Where("rope_scaling"), DescribeJson(*scaling)));
  }
  object.Number("rope_theta", model.rope_theta, 1.0, 1e12);
  const nlohmann::json* parameters = object.Find("rope_parameters");
  if (parameters == nullptr) return;
  StrictObject rope(*parameters, object.Where("rope_parameters"));
  RequireNeutral(rope, "rope_type", "default", "scaling of rotary positions");
  rope.Number("rope_theta", model.rope_theta, 1.0, 1e12);
}

void ReadLlama(StrictObject& object, ModelConfig& model) {
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = false;
  model.norm_epsilon = 1e-6;
  object.Integer("vocab_size", model.vocab_size, 1, kMaxVocab, Need::kRequired);
  object.Integer("hidden_size", model.hidden_size, 1, kMaxHidden, Need::kRequired);
  object.Integer("num_hidden_layers", model.num_layers, 1, kMaxLayers, Need::kRequired);
  object.Integer("num_attention_heads", model.num_heads, 1, kMaxHeads, Need::kRequired);
  model.num_kv_heads = model.num_heads;
  object.Integer("num_key_value_heads", model.num_kv_heads, 1, kMaxHeads);
  object.Integer("intermediate_size", model.ffn_hidden_size, 1, kMaxFfn, Need::kRequired);
  object.Integer("max_position_embeddings", model.max_sequence_length, 1, kMaxSequence,
                 Need::kRequired);
  object.Number("rms_norm_eps", model.norm_epsilon, 1e-30, 1.0);
  object.Boolean("tie_word_embeddings", model.tied_embeddings);
  ReadRope(object, model);
  RequireNeutral(object, "hidden_act", "silu", "an activation other than SiLU");
  RequireNeutral(object, "attention_bias", false, "a bias in attention");
  RequireNeutral(object, "mlp_bias", false, "a bias in the MLP");
  int64_t head_dim = model.head_size();
  object.Integer("head_dim", head_dim, 1, kMaxHidden);
  if (head_dim * model.num_heads != model.hidden_size) {
    throw InputError(fmt::format("{}: head_dim {} x {} heads must make hidden_size {}",
                                 object.Where("head_dim"), head_dim, model.num_heads,
                                 model.hidden_size));
  }
}

}  // namespace

bool IsHuggingFaceConfig(const nlohmann::json& json) {
  return json.is_object() && (json.contains("model_type") || json.contains("architectures"));
}

ModelConfig ModelConfigFromHuggingFace(const nlohmann::json& json, const std::string& where) {
  StrictObject(json, where);  // refuses what is no object
  const nlohmann::json kept = WithoutNulls(json);
  StrictObject object(kept, where);
  std::string type;
  object.Text("model_type", type, Need::kRequired);
  ModelConfig model;
  object.Text("_name_or_path", model.name);
  object.Number("initializer_range", model.init_std, 0.0, 10.0);
  if (type == "gpt2") {
    ReadGpt2(object, model);
  } else if (type == "llama") {
    ReadLlama(object, model);
  } else {
    object.Refuse("model_type", "gpt2 or llama");
  }
  return model;
}

}  // namespace trimtab

#include "engine/config/hugging_face_keys.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/config/model_limits.h"

namespace trimtab {
namespace {

constexpr const char* kHidden[] = {"hidden_size", "n_embd", "d_model", "n_embed"};
constexpr const char* kLayers[] = {"num_hidden_layers", "n_layer", "n_layers"};
constexpr const char* kHeads[] = {"num_attention_heads", "n_head", "n_heads"};
constexpr const char* kKvHeads[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv"};
constexpr const char* kFfn[] = {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"};
constexpr const char* kPositions[] = {"max_position_embeddings", "n_positions", "max_seq_len",
                                      "seq_length"};
constexpr const char* kEpsilon[] = {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps",
                                    "norm_eps"};
constexpr const char* kHeadSize[] = {"head_dim", "kv_channels"};
constexpr const char* kTheta[] = {"rope_theta", "rotary_emb_base"};
constexpr const char* kFraction[] = {"partial_rotary_factor", "rotary_pct", "rope_percent",
                                     "rope_percentage"};

/// Positions of models whose file and family do not say: the default of most classes, and what
/// BLOOM, whose class has none, trained on.
constexpr int64_t kUsualPositions = 2048;

nlohmann::json WithoutNulls(const nlohmann::json& json) {
  if (!json.is_object()) return json;  // StrictObject refuses it
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

struct ActivationName {
  const char* name;
  ActivationKind kind;
  bool gated;
};
constexpr ActivationName kActivations[] = {
    {"gelu", ActivationKind::kGeluErf, false},
    {"gelu", ActivationKind::kGeGluErf, true},
    {"gelu_new", ActivationKind::kGelu, false},
    {"gelu_fast", ActivationKind::kGelu, false},
    {"gelu_pytorch_tanh", ActivationKind::kGelu, false},
    {"gelu_new", ActivationKind::kGeGlu, true},
    {"gelu_pytorch_tanh", ActivationKind::kGeGlu, true},
    {"relu", ActivationKind::kRelu, false},
    {"relu2", ActivationKind::kSquaredRelu, false},
    {"silu", ActivationKind::kSwiGlu, true},
    {"swish", ActivationKind::kSwiGlu, true},
};

/// How much yarn multiplies cos and sin, or what its parts do (DeepSeek's two exponents).
double YarnFactor(double factor, double scale) { return 0.1 * scale * std::log(factor) + 1.0; }

}  // namespace

ConfigFile::ConfigFile(const nlohmann::json& json, const std::string& where)
    : all_(json), kept_(WithoutNulls(json)), object_(kept_, where) {}

std::string ConfigFile::type() {
  std::string type;
  object_.Text("model_type", type, Need::kRequired);
  return type;
}

ConfigFile ConfigFile::Within(const std::string& key) {
  const nlohmann::json* found = object_.Find(key);
  return ConfigFile(found != nullptr ? *found : nlohmann::json::object(), object_.Where(key));
}

std::string ConfigFile::NameOf(std::span<const char* const> names) const {
  for (const char* name : names) {
    if (kept_.contains(name)) return name;
  }
  return "";
}

bool ConfigFile::IsNull(const std::string& key) const {
  const auto found = all_.find(key);
  return found != all_.end() && found->is_null();
}

void ConfigFile::Integer(std::span<const char* const> names, int64_t& value, int64_t most,
                         Need need) {
  const std::string name = NameOf(names);
  if (!name.empty()) return object_.Integer(name, value, 1, most);
  if (need == Need::kOptional) return;
  std::string others;
  for (const char* other : names.subspan(1))
    others += (others.empty() ? "" : ", ") + std::string(other);
  throw InputError(fmt::format("{}: required, but missing, and so are its other names: {}",
                               object_.Where(names.front()), others));
}

void ConfigFile::Number(std::span<const char* const> names, double& value, double least,
                        double most) {
  if (const std::string name = NameOf(names); !name.empty()) {
    object_.Number(name, value, least, most);
  }
}

void ConfigFile::Sizes(ModelConfig& model) {
  object_.Text("_name_or_path", model.name);
  object_.Integer("vocab_size", model.vocab_size, 1, kMaxVocab, Need::kRequired);
  Integer(kHidden, model.hidden_size, kMaxHidden, Need::kRequired);
  Integer(kLayers, model.num_layers, kMaxLayers, Need::kRequired);
  Integer(kHeads, model.num_heads, kMaxHeads, Need::kRequired);
  // Null is as many as heads in all classes that allow it, also where a missing key is not.
  const bool null = std::ranges::any_of(kKvHeads, [this](const char* key) { return IsNull(key); });
  if (null || model.num_kv_heads == 0) model.num_kv_heads = model.num_heads;
  Integer(kKvHeads, model.num_kv_heads, kMaxHeads);
  if (model.ffn_hidden_size == 0 && !model.gated()) model.ffn_hidden_size = 4 * model.hidden_size;
  Integer(kFfn, model.ffn_hidden_size, kMaxFfn);
  if (model.max_sequence_length == 0) model.max_sequence_length = kUsualPositions;
  Integer(kPositions, model.max_sequence_length, kMaxSequence,
          model.position == PositionKind::kLearned ? Need::kRequired : Need::kOptional);
  Integer(kHeadSize, model.head_dim, kMaxHidden);
  Number(kEpsilon, model.norm_epsilon, 1e-30, 1.0);
  object_.Number("initializer_range", model.init_std, 0.0, 10.0);
  object_.Boolean("tie_word_embeddings", model.tied_embeddings);
}

void ConfigFile::RequireSizes(ModelConfig& model) {
  if (model.ffn_hidden_size == 0) {
    Integer(kFfn, model.ffn_hidden_size, kMaxFfn, Need::kRequired);
  }
}

void ConfigFile::Activation(const std::string& key, const std::string& usual, ModelConfig& model) {
  std::string name = usual;
  object_.Text(key, name);
  std::string known;
  for (const ActivationName& row : kActivations) {
    if (row.gated != model.gated()) continue;
    if (name == row.name) {
      model.activation = row.kind;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  object_.Refuse(key, "one of " + known);
}

void ConfigFile::Rope(ModelConfig& model) {
  Number(kTheta, model.rope_theta, 1.0, 1e12);
  Number(kFraction, model.rotary_fraction, 1e-3, 1.0);
  Scaling("rope_scaling", model);
  Scaling("rope_parameters", model);
}

// Under rope_scaling stands the scaling alone, under rope_parameters all of it; the kind is called
// "type" in old files.
void ConfigFile::Scaling(const std::string& key, ModelConfig& model) {
  const nlohmann::json* found = object_.Find(key);
  if (found == nullptr) return;
  ConfigFile inner(*found, object_.Where(key));
  inner.Number(kTheta, model.rope_theta, 1.0, 1e12);
  inner.Number(kFraction, model.rotary_fraction, 1e-3, 1.0);
  StrictObject& rope = inner.object_;
  std::string kind = "default";
  const std::string kind_key = inner.kept_.contains("rope_type") ? "rope_type" : "type";
  rope.Text(kind_key, kind);
  RopeScaling scaling;
  if (kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScalingKind::kLlama3;
  } else if (kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
  } else if (kind != "default") {
    rope.Refuse(kind_key, "one of default, linear, llama3, yarn");
  }
  if (kind != "default") rope.Number("factor", scaling.factor, 1.0, 1e6, Need::kRequired);
  if (kind == "llama3" || kind == "yarn") {
    scaling.original_length = model.max_sequence_length;
    rope.Integer("original_max_position_embeddings", scaling.original_length, 1, kMaxSequence);
  }
  if (kind == "llama3") {
    rope.Number("low_freq_factor", scaling.low_frequency, 1e-3, 1e6, Need::kRequired);
    rope.Number("high_freq_factor", scaling.high_frequency, 1e-3, 1e6, Need::kRequired);
  }
  if (kind == "yarn") {
    rope.Number("beta_fast", scaling.beta_fast, 1e-3, 1e6);
    rope.Number("beta_slow", scaling.beta_slow, 1e-3, 1e6);
    rope.Boolean("truncate", scaling.truncate);
    double above = 0;
    double below = 0;
    rope.Number("mscale", above, 1e-6, 1e6);
    rope.Number("mscale_all_dim", below, 1e-6, 1e6);
    if (above > 0 && below > 0) {
      scaling.attention_factor =
          YarnFactor(scaling.factor, above) / YarnFactor(scaling.factor, below);
    }
    rope.Number("attention_factor", scaling.attention_factor, 1e-6, 1e6);
  }
  rope.Finish();
  model.rope_scaling = scaling;
}

void ConfigFile::LayerTypes(const ModelConfig& model) {
  const nlohmann::json* types = object_.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != model.num_layers) {
    object_.Refuse("layer_types",
                   fmt::format("an array of {}, one for each layer", model.num_layers));
  }
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const char* expected =
        model.layer_kind(i).sliding_window > 0 ? "sliding_attention" : "full_attention";
    const nlohmann::json& type = types->at(static_cast<size_t>(i));
    if (type == expected) continue;
    throw InputError(fmt::format("{}[{}]: expected {}, got {}", object_.Where("layer_types"), i,
                                 expected, DescribeJson(type)));
  }
}

void ConfigFile::Nullable(const std::string& key, int64_t& value, int64_t most) {
  if (IsNull(key)) value = 0;
  object_.Integer(key, value, 1, most);
}

void ConfigFile::Nullable(const std::string& key, double& value) {
  if (IsNull(key)) value = 0;
  object_.Number(key, value, 1e-6, 1e6);
}

void ConfigFile::RequireNeutral(const std::string& key, const nlohmann::json& neutral,
                                const std::string& feature) {
  const nlohmann::json* found = object_.Find(key);
  if (found == nullptr || *found == neutral) return;
  throw InputError(fmt::format("{}: {} is not supported; expected {} or no such key, got {}",
                               object_.Where(key), feature, neutral.dump(), DescribeJson(*found)));
}

}  // namespace trimtab

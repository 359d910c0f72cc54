#include "engine/families/keys/config_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/keys/other_keys.h"

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
constexpr const char* kExperts[] = {"num_experts", "num_local_experts", "n_routed_experts"};
constexpr const char* kChosen[] = {"num_experts_per_tok", "experts_per_token"};

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

}  // namespace

ConfigFile::ConfigFile(const nlohmann::json& json, const std::string& where)
    : ConfigFile(json, where, "", std::make_shared<Told>()) {}

ConfigFile::ConfigFile(const nlohmann::json& json, const std::string& where, std::string prefix,
                       std::shared_ptr<Told> told)
    : all_(json),
      kept_(WithoutNulls(json)),
      prefix_(std::move(prefix)),
      object_(kept_, where),
      told_(std::move(told)) {}

std::string ConfigFile::type() {
  std::string type;
  object_.Text("model_type", type, Need::kRequired);
  return type;
}

int64_t ConfigFile::version() {
  std::string version = "4";
  object_.Text("transformers_version", version);
  return version.starts_with("5.") ? 5 : 4;
}

ConfigFile ConfigFile::Within(const std::string& key) {
  const nlohmann::json* found = object_.Find(key);
  return ConfigFile(found != nullptr ? *found : nlohmann::json::object(), object_.Where(key),
                    prefix_ + key + ".", told_);
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
  if (!name.empty()) {
    object_.Integer(name, value, 1, most);
    for (const char* other : names) {
      int64_t again = value;
      object_.Integer(other, again, 1, most);
      if (again == value) continue;
      object_.Refuse(other, fmt::format("{}, as {} says", value, name));
    }
    return;
  }
  if (need == Need::kOptional) return;
  std::string others;
  for (const char* other : names.subspan(1))
    others += (others.empty() ? "" : ", ") + std::string(other);
  throw InputError(fmt::format("{}: required, but missing, and so are its other names: {}",
                               object_.Where(names.front()), others));
}

void ConfigFile::Number(std::span<const char* const> names, double& value, double least,
                        double most) {
  const std::string name = NameOf(names);
  if (name.empty()) return;
  object_.Number(name, value, least, most);
  for (const char* other : names) {
    double again = value;
    object_.Number(other, again, least, most);
    if (again != value) object_.Refuse(other, fmt::format("{}, as {} says", value, name));
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
  // Only the first name that is there counts: files of other origin often keep a second one.
  const std::string positions = NameOf(kPositions);
  if (positions.empty() && model.position == PositionKind::kLearned) {
    Integer(kPositions, model.max_sequence_length, kMaxSequence, Need::kRequired);
  }
  if (!positions.empty()) object_.Integer(positions, model.max_sequence_length, 1, kMaxSequence);
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

void ConfigFile::Experts(MoeConfig& moe, Need chosen) {
  Integer(kExperts, moe.num_experts, kMaxExperts);
  Integer(kChosen, moe.router_topk, kMaxExperts, chosen);
}

void ConfigFile::LayerTypes(ModelConfig& model) {
  const nlohmann::json* types = object_.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != model.num_layers) {
    object_.Refuse("layer_types",
                   fmt::format("an array of {}, one for each layer", model.num_layers));
  }
  // A model has a window in all layers, or in all but the last of every so many.
  int64_t period = 1;
  while (period <= model.num_layers &&
         types->at(static_cast<size_t>(period - 1)) != "full_attention") {
    ++period;
  }
  ModelConfig listed = model;
  if (model.sliding_window > 0) {
    listed.full_attention_period = period > model.num_layers ? 0 : period;
    if (period == 1) listed.sliding_window = listed.full_attention_period = 0;
  }
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const char* expected = listed.window(i) > 0 ? "sliding_attention" : "full_attention";
    const nlohmann::json& type = types->at(static_cast<size_t>(i));
    if (type == expected) continue;
    throw InputError(fmt::format("{}[{}]: expected {}, got {}", object_.Where("layer_types"), i,
                                 expected, DescribeJson(type)));
  }
  // Where a model is so shallow that no layer shows the period, the family's stays.
  for (int64_t i = 0; i < model.num_layers; ++i) {
    if (listed.window(i) != model.window(i)) {
      model = listed;
      return;
    }
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

void ConfigFile::PassOver(const std::string& key) {
  if (object_.Find(key) != nullptr) told_->passed.push_back(prefix_ + key);
}

void ConfigFile::Finish(const ModelConfig& model) {
  std::vector<std::string> unknown;
  for (const std::string& key : object_.Unread()) {
    if (IsHarmlessKey(key)) {
      told_->passed.push_back(prefix_ + key);
    } else if (const std::optional<nlohmann::json> done = EngineValue(key, model)) {
      RequireNeutral(key, *done, "another " + key);
    } else {
      unknown.push_back(object_.Where(key));
    }
  }
  if (unknown.empty()) return;
  throw InputError(
      fmt::format("{}: unknown key{}, which may change what the model computes; expected no such "
                  "key, or null",
                  fmt::join(unknown, ", "), unknown.size() == 1 ? "" : "s"));
}

std::vector<std::string> ConfigFile::Notes() const {
  std::vector<std::string> notes = told_->lines;
  if (!told_->passed.empty()) {
    notes.push_back(fmt::format("keys that change no result are passed over: {}",
                                fmt::join(told_->passed, ", ")));
  }
  return notes;
}

}  // namespace trimtab

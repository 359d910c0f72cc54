// Rotary positions in a config.json, in the forms of Transformers 4 and 5.
#include <cmath>

#include "engine/base/error.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/keys/config_file.h"

namespace trimtab {
namespace {

/// Keys that only one kind of scaling reads: under another kind Transformers passes over them.
constexpr const char* kKeysOfKinds[] = {"factor",           "original_max_position_embeddings",
                                        "low_freq_factor",  "high_freq_factor",
                                        "beta_fast",        "beta_slow",
                                        "mscale",           "mscale_all_dim",
                                        "attention_factor", "attn_factor",
                                        "truncate"};

/// How much yarn multiplies cos and sin, or what its parts do (DeepSeek's two exponents).
double YarnFactor(double factor, double scale) { return 0.1 * scale * std::log(factor) + 1.0; }

/// True for an object of Transformers 5 with an object for each type of layer in it.
bool IsPerLayerType(const nlohmann::json& found) {
  if (!found.is_object()) return false;
  for (const auto& [key, value] : found.items()) {
    if (key.ends_with("_attention") && value.is_object()) return true;
  }
  return false;
}

}  // namespace

void ConfigFile::Rope(ModelConfig& model) {
  Number(kThetaNames, model.rope_theta, 1.0, 1e12);
  Number(kFractionNames, model.rotary_fraction, 1e-3, 1.0);
  const bool older = Scaling("rope_scaling", model);
  const RopeScaling before = model.rope_scaling;
  if (Scaling("rope_parameters", model) && older && model.rope_scaling != before) {
    object_.Refuse("rope_parameters", "the same scaling as in rope_scaling, or only one of both");
  }
}

bool ConfigFile::Scaling(const std::string& key, ModelConfig& model) {
  const nlohmann::json* found = object_.Find(key);
  if (found == nullptr) return false;
  if (!IsPerLayerType(*found)) {
    Within(key).ReadScaling(*this, model);
    return true;
  }
  ConfigFile types = Within(key);
  ModelConfig full = model;
  ModelConfig local = model;
  types.Within("full_attention").ReadScaling(*this, full);
  if (model.window_rope_theta > 0) local.rope_theta = model.window_rope_theta;
  types.Within("sliding_attention").ReadScaling(*this, local);
  const bool same = local == full;
  const bool scaled = local.rope_scaling.kind != RopeScalingKind::kNone;
  if (!same && (scaled || local.rotary_fraction != full.rotary_fraction)) {
    throw InputError(fmt::format(
        "{}: rotary positions of layers with a window may differ from the others' in their base "
        "alone, and be unscaled; expected no more",
        types.object_.Where("sliding_attention")));
  }
  types.Finish(model);
  model = full;
  model.window_rope_theta = same ? 0 : local.rope_theta;
  return true;
}

// rope_scaling holds the scaling alone, rope_parameters all of it. The kind is called "type" in old
// files; what Transformers 4 saves has both, of which it reads rope_type.
void ConfigFile::ReadScaling(ConfigFile& outer, ModelConfig& model) {
  Number(kThetaNames, model.rope_theta, 1.0, 1e12);
  Number(kFractionNames, model.rotary_fraction, 1e-3, 1.0);
  std::string old_kind;
  object_.Text("type", old_kind);
  std::string kind = old_kind.empty() ? "default" : old_kind;
  object_.Text("rope_type", kind);
  if (!old_kind.empty() && kind != old_kind) {
    told_->lines.push_back(fmt::format("{}rope_type '{}' holds, not type '{}', as in Transformers",
                                       prefix_, kind, old_kind));
  }
  RopeScaling scaling;
  if (kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScalingKind::kLlama3;
  } else if (kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
  } else if (kind != "default") {
    object_.Refuse(kept_.contains("rope_type") ? "rope_type" : "type",
                   "one of default, linear, llama3, yarn");
  }
  if (kind != "default") object_.Number("factor", scaling.factor, 1.0, 1e6, Need::kRequired);
  if (kind == "llama3" || kind == "yarn") {
    scaling.original_length = model.max_sequence_length;
    const char* key = "original_max_position_embeddings";
    outer.object_.Integer(key, scaling.original_length, 1, kMaxSequence);
    object_.Integer(key, scaling.original_length, 1, kMaxSequence);
  }
  if (kind == "llama3") {
    object_.Number("low_freq_factor", scaling.low_frequency, 1e-3, 1e6, Need::kRequired);
    object_.Number("high_freq_factor", scaling.high_frequency, 1e-3, 1e6, Need::kRequired);
  }
  if (kind == "yarn") ReadYarn(scaling);
  for (const std::string& key : object_.Unread()) {
    for (const char* other : kKeysOfKinds) {
      if (key == other) PassOver(key);
    }
  }
  Finish(model);
  model.rope_scaling = scaling;
}

void ConfigFile::ReadYarn(RopeScaling& scaling) {
  object_.Number("beta_fast", scaling.beta_fast, 1e-3, 1e6);
  object_.Number("beta_slow", scaling.beta_slow, 1e-3, 1e6);
  object_.Boolean("truncate", scaling.truncate);
  double above = 0;
  double below = 0;
  object_.Number("mscale", above, 0, 1e6);
  object_.Number("mscale_all_dim", below, 0, 1e6);
  if (above > 0 && below > 0) {
    scaling.attention_factor =
        YarnFactor(scaling.factor, above) / YarnFactor(scaling.factor, below);
  }
  // YaRN's own code (arXiv:2309.00071) and vLLM multiply the factor by attn_factor, as models
  // published with it expect; Transformers passes over that name.
  double attn_factor = 0;
  object_.Number("attn_factor", attn_factor, 1e-6, 1e6);
  if (attn_factor > 0 && !kept_.contains("attention_factor")) {
    const double factor =
        scaling.attention_factor > 0 ? scaling.attention_factor : YarnFactor(scaling.factor, 1.0);
    scaling.attention_factor = factor * attn_factor;
    told_->lines.push_back(
        fmt::format("{}attn_factor {} makes yarn's attention factor {:.6g}, as in YaRN's own code "
                    "and vLLM; Transformers passes over it ({:.6g})",
                    prefix_, attn_factor, scaling.attention_factor, factor));
  }
  object_.Number("attention_factor", scaling.attention_factor, 1e-6, 1e6);
}

}  // namespace trimtab

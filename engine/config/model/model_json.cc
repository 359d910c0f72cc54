// Our own JSON form of a ModelConfig.
#include <array>
#include <nlohmann/json.hpp>

#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_config.h"
#include "engine/config/model/model_limits.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

constexpr std::array<Named<NormKind>, 2> kNormNames = {
    {{NormKind::kLayerNorm, "layernorm"}, {NormKind::kRmsNorm, "rmsnorm"}}};
constexpr std::array<Named<ActivationKind>, 8> kActivationNames = {
    {{ActivationKind::kGelu, "gelu"},
     {ActivationKind::kSwiGlu, "swiglu"},
     {ActivationKind::kGeluErf, "gelu_erf"},
     {ActivationKind::kRelu, "relu"},
     {ActivationKind::kSquaredRelu, "squared_relu"},
     {ActivationKind::kGeGlu, "geglu"},
     {ActivationKind::kGeGluErf, "geglu_erf"},
     {ActivationKind::kClampedSwiGlu, "clamped_swiglu"}}};
constexpr std::array<Named<PositionKind>, 4> kPositionNames = {{{PositionKind::kLearned, "learned"},
                                                                {PositionKind::kRope, "rope"},
                                                                {PositionKind::kAlibi, "alibi"},
                                                                {PositionKind::kNone, "none"}}};
constexpr std::array<Named<BlockKind>, 7> kBlockNames = {
    {{BlockKind::kSequential, "sequential"},
     {BlockKind::kParallel, "parallel"},
     {BlockKind::kParallelShared, "parallel_shared_norm"},
     {BlockKind::kSandwich, "sandwich"},
     {BlockKind::kDeepNorm, "deep_norm"},
     {BlockKind::kPostNorm, "post_norm"},
     {BlockKind::kReorderedNorm, "reordered_norm"}}};
constexpr std::array<Named<RopeScalingKind>, 4> kRopeScalingNames = {
    {{RopeScalingKind::kNone, "none"},
     {RopeScalingKind::kLinear, "linear"},
     {RopeScalingKind::kLlama3, "llama3"},
     {RopeScalingKind::kYarn, "yarn"}}};

constexpr double kMaxScale = 1e6;

RopeScaling ReadRopeScaling(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  RopeScaling scaling;
  object.Choice("kind", scaling.kind, kRopeScalingNames, Need::kRequired);
  object.Number("factor", scaling.factor, 1.0, kMaxScale, Need::kRequired);
  object.Integer("original_length", scaling.original_length, 0, kMaxSequence);
  object.Number("low_frequency", scaling.low_frequency, 1e-3, kMaxScale);
  object.Number("high_frequency", scaling.high_frequency, 1e-3, kMaxScale);
  object.Number("beta_fast", scaling.beta_fast, 1e-3, kMaxScale);
  object.Number("beta_slow", scaling.beta_slow, 1e-3, kMaxScale);
  object.Boolean("truncate", scaling.truncate);
  object.Number("attention_factor", scaling.attention_factor, 0, kMaxScale);
  object.Finish();
  return scaling;
}

nlohmann::json ToJson(const RopeScaling& scaling) {
  return {{"kind", NameIn(kRopeScalingNames, scaling.kind)},
          {"factor", scaling.factor},
          {"original_length", scaling.original_length},
          {"low_frequency", scaling.low_frequency},
          {"high_frequency", scaling.high_frequency},
          {"beta_fast", scaling.beta_fast},
          {"beta_slow", scaling.beta_slow},
          {"truncate", scaling.truncate},
          {"attention_factor", scaling.attention_factor}};
}

// What only some families have. Left out where it has its default.

struct ModelSwitch {
  const char* key;
  bool ModelConfig::*member;
};
constexpr ModelSwitch kSwitches[] = {
    {"norm_bias", &ModelConfig::norm_bias},
    {"norm_weight_plus_one", &ModelConfig::norm_weight_plus_one},
    {"embedding_norm", &ModelConfig::embedding_norm},
    {"final_norm", &ModelConfig::final_norm},
    {"output_bias", &ModelConfig::output_bias},
    {"query_key_norm", &ModelConfig::query_key_norm},
    {"query_key_norm_whole", &ModelConfig::query_key_norm_whole},
    {"attention_sinks", &ModelConfig::attention_sinks},
    {"rotary_interleaved", &ModelConfig::rotary_interleaved},
};

struct OptionalSwitch {
  const char* key;
  std::optional<bool> ModelConfig::*member;
};
constexpr OptionalSwitch kOptionalSwitches[] = {
    {"qkv_bias", &ModelConfig::qkv_bias},
    {"mlp_bias", &ModelConfig::mlp_bias},
};

struct ModelNumber {
  const char* key;
  double ModelConfig::*member;
  double least;
  double most = kMaxScale;
};
constexpr ModelNumber kNumbers[] = {
    {"embedding_scale", &ModelConfig::embedding_scale, 1e-6},
    {"logit_scale", &ModelConfig::logit_scale, 1e-6},
    {"logit_soft_cap", &ModelConfig::logit_soft_cap, 0},
    {"attention_soft_cap", &ModelConfig::attention_soft_cap, 0},
    {"attention_scale", &ModelConfig::attention_scale, 0},
    {"qkv_clip", &ModelConfig::qkv_clip, 0},
    {"window_rope_theta", &ModelConfig::window_rope_theta, 0, 1e12},
};

struct ModelInteger {
  const char* key;
  int64_t ModelConfig::*member;
  int64_t least;
  int64_t most;
};
constexpr ModelInteger kIntegers[] = {
    {"head_size", &ModelConfig::head_dim, 1, kMaxHidden},
    {"embedding_size", &ModelConfig::embedding_dim, 1, kMaxHidden},
    {"position_offset", &ModelConfig::position_offset, 0, kMaxSequence},
    {"sliding_window", &ModelConfig::sliding_window, 0, kMaxSequence},
    {"full_attention_period", &ModelConfig::full_attention_period, 0, kMaxLayers},
    {"mtp_modules", &ModelConfig::mtp_modules, 0, kMaxLayers},
};

void ReadFamilyFields(StrictObject& object, ModelConfig& model) {
  object.Choice("block", model.block, kBlockNames);
  for (const ModelSwitch& row : kSwitches) object.Boolean(row.key, model.*row.member);
  for (const OptionalSwitch& row : kOptionalSwitches) {
    if (object.Find(row.key) != nullptr) object.Boolean(row.key, (model.*row.member).emplace());
  }
  for (const ModelNumber& row : kNumbers) {
    object.Number(row.key, model.*row.member, row.least, row.most);
  }
  for (const ModelInteger& row : kIntegers) {
    object.Integer(row.key, model.*row.member, row.least, row.most);
  }
  object.Number("rotary_fraction", model.rotary_fraction, 1e-3, 1.0);
  if (const nlohmann::json* scaling = object.Find("rope_scaling")) {
    model.rope_scaling = ReadRopeScaling(*scaling, object.Where("rope_scaling"));
  }
}

void WriteFamilyFields(const ModelConfig& model, nlohmann::json& json) {
  const ModelConfig usual;
  const auto put = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (model.*row.member != usual.*row.member) json[row.key] = model.*row.member;
    }
  };
  if (model.block != usual.block) json["block"] = NameIn(kBlockNames, model.block);
  put(kSwitches);
  for (const OptionalSwitch& row : kOptionalSwitches) {
    if (model.*row.member) json[row.key] = *(model.*row.member);
  }
  put(kNumbers);
  put(kIntegers);
  if (model.rotary_fraction != usual.rotary_fraction) {
    json["rotary_fraction"] = model.rotary_fraction;
  }
  if (model.rope_scaling != usual.rope_scaling) json["rope_scaling"] = ToJson(model.rope_scaling);
}

}  // namespace

ModelConfig ModelConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ModelConfig model;
  object.Line("name", model.name);
  object.Integer("vocab_size", model.vocab_size, 1, kMaxVocab, Need::kRequired);
  object.Integer("hidden_size", model.hidden_size, 1, kMaxHidden, Need::kRequired);
  object.Integer("num_layers", model.num_layers, 1, kMaxLayers, Need::kRequired);
  object.Integer("num_heads", model.num_heads, 1, kMaxHeads, Need::kRequired);
  model.num_kv_heads = model.num_heads;
  object.Integer("num_kv_heads", model.num_kv_heads, 1, kMaxHeads);
  model.ffn_hidden_size = 4 * model.hidden_size;
  object.Integer("ffn_hidden_size", model.ffn_hidden_size, 1, kMaxFfn);
  object.Integer("max_sequence_length", model.max_sequence_length, 1, kMaxSequence,
                 Need::kRequired);
  object.Choice("norm", model.norm, kNormNames);
  object.Choice("activation", model.activation, kActivationNames);
  object.Choice("position", model.position, kPositionNames);
  object.Number("norm_epsilon", model.norm_epsilon, 1e-30, 1.0);
  object.Number("rope_theta", model.rope_theta, 1.0, 1e12);
  object.Boolean("bias", model.bias);
  object.Boolean("tied_embeddings", model.tied_embeddings);
  object.Number("init_std", model.init_std, 0.0, 10.0);
  object.Integer("make_vocab_size_divisible_by", model.make_vocab_size_divisible_by, 1, kMaxVocab);
  ReadFamilyFields(object, model);
  if (const nlohmann::json* latent = object.Find("latent_attention")) {
    model.latent = LatentConfigFromJson(*latent, object.Where("latent_attention"));
  }
  if (const nlohmann::json* moe = object.Find("moe")) {
    model.moe = MoeConfigFromJson(*moe, object.Where("moe"));
  }
  object.Finish();
  RequireConsistent(model, where);
  return model;
}

nlohmann::json ToJson(const ModelConfig& model) {
  nlohmann::json json = {{"name", model.name},
                         {"vocab_size", model.vocab_size},
                         {"hidden_size", model.hidden_size},
                         {"num_layers", model.num_layers},
                         {"num_heads", model.num_heads},
                         {"num_kv_heads", model.num_kv_heads},
                         {"ffn_hidden_size", model.ffn_hidden_size},
                         {"max_sequence_length", model.max_sequence_length},
                         {"norm", NameIn(kNormNames, model.norm)},
                         {"activation", NameIn(kActivationNames, model.activation)},
                         {"position", NameIn(kPositionNames, model.position)},
                         {"norm_epsilon", model.norm_epsilon},
                         {"rope_theta", model.rope_theta},
                         {"bias", model.bias},
                         {"tied_embeddings", model.tied_embeddings},
                         {"init_std", model.init_std},
                         {"make_vocab_size_divisible_by", model.make_vocab_size_divisible_by}};
  WriteFamilyFields(model, json);
  if (model.latent.used()) json["latent_attention"] = ToJson(model.latent);
  if (model.moe.used()) json["moe"] = ToJson(model.moe);
  return json;
}

}  // namespace trimtab

#include "engine/config/model/latent_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_config.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

struct Size {
  const char* key;
  int64_t LatentConfig::*member;
  int64_t most;
  Need need;
};
constexpr Size kSizes[] = {
    {"q_lora_rank", &LatentConfig::q_lora_rank, kMaxHidden, Need::kOptional},
    {"kv_lora_rank", &LatentConfig::kv_lora_rank, kMaxHidden, Need::kRequired},
    {"qk_nope_head_dim", &LatentConfig::qk_nope_head_dim, kMaxHidden, Need::kRequired},
    {"qk_rope_head_dim", &LatentConfig::qk_rope_head_dim, kMaxHidden, Need::kRequired},
    {"v_head_dim", &LatentConfig::v_head_dim, kMaxHidden, Need::kRequired},
};

}  // namespace

LatentConfig LatentConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  LatentConfig latent;
  for (const Size& row : kSizes) {
    object.Integer(row.key, latent.*row.member, 1, row.most, row.need);
  }
  object.Finish();
  return latent;
}

nlohmann::json ToJson(const LatentConfig& latent) {
  nlohmann::json json;
  for (const Size& row : kSizes) {
    if (latent.*row.member != 0) json[row.key] = latent.*row.member;
  }
  return json;
}

std::string LatentFault(const ModelConfig& model) {
  const LatentConfig& latent = model.latent;
  if (!latent.used()) return "";
  if (latent.qk_rope_head_dim < 2 || latent.qk_rope_head_dim % 2 != 0) {
    return fmt::format("qk_rope_head_dim is {}, expected an even number of at least 2",
                       latent.qk_rope_head_dim);
  }
  if (latent.qk_nope_head_dim < 1 || latent.v_head_dim < 1) {
    return fmt::format("qk_nope_head_dim is {} and v_head_dim {}, expected at least 1 each",
                       latent.qk_nope_head_dim, latent.v_head_dim);
  }
  if (model.num_kv_heads != model.num_heads) {
    return fmt::format("num_kv_heads is {} and num_heads {}, expected as many", model.num_kv_heads,
                       model.num_heads);
  }
  if (model.head_dim != 0) return "head_size is that of its parts, expected none beside them";
  if (model.position != PositionKind::kRope || model.rotary_fraction != 1.0) {
    return "its heads turn in part, expected position rope and no rotary_fraction";
  }
  if (model.norm != NormKind::kRmsNorm) return "its vectors have norms, expected rmsnorm";
  if (model.bias || model.has_qkv_bias() || model.query_key_norm || model.qkv_clip != 0) {
    return "it has neither biases nor query_key_norm nor qkv_clip";
  }
  return "";
}

}  // namespace trimtab

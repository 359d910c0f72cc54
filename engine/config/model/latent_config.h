// Multi-head latent attention: queries, keys and values made of compressed vectors.
//
// Names follow config.json of DeepSeek-V2 and V3.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

struct ModelConfig;

/// Keys and values of all heads are projections of one vector of kv_lora_rank elements per token,
/// but for the part of the keys that turns by position, which all heads share (DeepSeek-V2,
/// arXiv:2405.04434, section 2.1). Of a head of D = qk_nope_head_dim + qk_rope_head_dim, the last
/// turn.
struct LatentConfig {
  int64_t q_lora_rank = 0;   // of the vector that queries are made of; 0 = they are not compressed
  int64_t kv_lora_rank = 0;  // 0: attention is not latent
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;

  bool used() const { return kv_lora_rank > 0; }
  bool operator==(const LatentConfig&) const = default;
};

/// Strict JSON. `where` prefixes error messages ("run.json: $.model.latent_attention").
LatentConfig LatentConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const LatentConfig& latent);

/// An empty string, or what of the model does not go with its latent attention.
std::string LatentFault(const ModelConfig& model);

}  // namespace trimtab

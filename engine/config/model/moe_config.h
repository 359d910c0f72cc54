// Mixture of experts: which layers have experts, and how a token finds its own.
//
// Names follow Megatron-Core's options (moe_router_topk, moe_aux_loss_coeff, ...) without "moe_".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// How the experts of a token are chosen.
enum class RouterKind : uint8_t {
  kTopK,      // the highest scores
  kSinkhorn,  // one, by scores that Sinkhorn's iteration has balanced (arXiv:2103.16716)
};

/// What makes scores of logits.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

/// What a group of experts is worth, of the scores of its experts.
enum class GroupScore : uint8_t {
  kMax,         // the highest: DeepSeek-V2
  kSumOfTopTwo  // the sum of the two highest: DeepSeek-V3
};

/// Which of too many tokens an expert keeps.
enum class DropPolicy : uint8_t {
  kProbability,  // those of the highest weights
  kPosition,     // the first of the sequence
};

/// Groups of experts, at most.
inline constexpr int64_t kMaxExpertGroups = 64;

/// E experts, of which a token takes k. What looks at several tokens (Sinkhorn's iteration, the
/// capacity, the load-balancing loss) looks at those of one sequence, so that no layout changes a
/// decision.
struct MoeConfig {
  int64_t num_experts = 0;             // E; 0: every MLP is dense
  int64_t router_topk = 2;             // k
  int64_t ffn_hidden_size = 0;         // of each expert
  int64_t shared_ffn_hidden_size = 0;  // of the shared experts together, one MLP; 0 = none
  bool shared_expert_gate = false;     // multiplies its result by sigmoid(x w): Qwen2-MoE

  // Of the layers from number first_k_dense on, those with number % layer_freq == layer_offset have
  // experts.
  int64_t first_k_dense = 0;
  int64_t layer_freq = 1;
  int64_t layer_offset = 0;

  RouterKind router = RouterKind::kTopK;
  RouterScore score = RouterScore::kSoftmax;
  bool pre_softmax = false;          // the softmax is over all experts, else over the chosen ones
  bool norm_topk = false;            // a token's weights are divided by their sum
  double topk_scaling_factor = 1.0;  // multiplies the weights, last
  int64_t num_groups = 1;            // of neighbouring experts
  int64_t group_topk = 1;            // the groups that a token may choose from
  GroupScore group_score = GroupScore::kMax;
  bool router_bias = false;   // a learned bias of the logits: GPT-OSS
  double logit_soft_cap = 0;  // logits become cap * tanh(logits / cap); 0 = none: Grok-1

  // A bias of the scores that only the choice sees, moved by the rate against each expert's load
  // at the end of a step (DeepSeek-V3, arXiv:2408.15664).
  bool expert_bias = false;
  double bias_update_rate = 1e-3;
  double aux_loss_coeff = 0;  // of the load-balancing loss
  double z_loss_coeff = 0;    // of the mean of (logsumexp of a token's logits)^2

  // An expert takes ceil(capacity_factor * k * T / E) tokens of a sequence, at most; 0 = all.
  double capacity_factor = 0;
  DropPolicy drop_policy = DropPolicy::kProbability;
  bool pad_to_capacity = false;  // rows of zeros fill up every expert

  /// Whether any layer has experts.
  bool used() const { return num_experts > 0; }
  bool is_moe_layer(int64_t layer) const {
    return used() && layer >= first_k_dense && layer % layer_freq == layer_offset;
  }
  /// How many of layers [0, num_layers) have experts.
  int64_t moe_layers(int64_t num_layers) const;
  /// Tokens of a sequence that an expert takes at most; `sequence_length` where there is no limit.
  int64_t capacity(int64_t sequence_length) const;
  bool operator==(const MoeConfig&) const = default;
};

/// How a run routes, beside what its model says.
struct RoutingConfig {
  /// Tokens go to the experts in turn, whatever the scores say: for tests and measurements, whose
  /// counts are then known. The weights stay those of the scores.
  bool force_balance = false;
  /// The tokens of the fullest rank's experts over the mean, where a prediction cannot know them.
  double imbalance_factor = 1.0;

  bool operator==(const RoutingConfig&) const = default;
};

/// Strict JSON. `where` prefixes error messages ("run.json: $.model.moe").
MoeConfig MoeConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const MoeConfig& moe);
RoutingConfig RoutingConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const RoutingConfig& routing);

/// An empty string, or what of the members contradicts the others.
std::string FaultOf(const MoeConfig& moe);

}  // namespace trimtab

#include "engine/config/model/moe_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

constexpr std::array<Named<RouterKind>, 2> kRouterNames = {
    {{RouterKind::kTopK, "topk"}, {RouterKind::kSinkhorn, "sinkhorn"}}};
constexpr std::array<Named<RouterScore>, 2> kScoreNames = {
    {{RouterScore::kSoftmax, "softmax"}, {RouterScore::kSigmoid, "sigmoid"}}};
constexpr std::array<Named<GroupScore>, 2> kGroupScoreNames = {
    {{GroupScore::kMax, "max"}, {GroupScore::kSumOfTopTwo, "sum_of_top_two"}}};
constexpr std::array<Named<DropPolicy>, 2> kDropPolicyNames = {
    {{DropPolicy::kProbability, "probs"}, {DropPolicy::kPosition, "position"}}};

constexpr double kMaxFactor = 1e6;

}  // namespace

int64_t MoeConfig::moe_layers(int64_t num_layers) const {
  if (!used() || num_layers <= first_k_dense) return 0;
  // The first n layers have one for each layer_offset + i * layer_freq below n.
  const auto among_first = [this](int64_t n) {
    return (n - layer_offset - 1 + layer_freq) / layer_freq;
  };
  return among_first(num_layers) - among_first(first_k_dense);
}

int64_t MoeConfig::capacity(int64_t sequence_length) const {
  if (capacity_factor == 0) return sequence_length;
  const double mean = static_cast<double>(router_topk * sequence_length) /
                      static_cast<double>(std::max<int64_t>(1, num_experts));
  return std::min(sequence_length, static_cast<int64_t>(std::ceil(capacity_factor * mean)));
}

std::string FaultOf(const MoeConfig& moe) {
  if (!moe.used()) return "";
  for (const auto& [name, size] :
       {std::pair("router_topk", moe.router_topk),
        std::pair("ffn_hidden_size", moe.ffn_hidden_size), std::pair("layer_freq", moe.layer_freq),
        std::pair("num_groups", moe.num_groups), std::pair("group_topk", moe.group_topk)}) {
    if (size < 1) return fmt::format("{} is {}; must be at least 1", name, size);
  }
  if (moe.router_topk > moe.num_experts) {
    return fmt::format("router_topk {} is more than num_experts {}", moe.router_topk,
                       moe.num_experts);
  }
  if (moe.num_experts % moe.num_groups != 0) {
    return fmt::format("num_experts {} is not divisible by num_groups {}", moe.num_experts,
                       moe.num_groups);
  }
  if (moe.group_topk > moe.num_groups) {
    return fmt::format("group_topk {} is more than num_groups {}", moe.group_topk, moe.num_groups);
  }
  if (moe.router_topk > moe.group_topk * (moe.num_experts / moe.num_groups)) {
    return fmt::format("router_topk {} is more than the {} experts of {} groups", moe.router_topk,
                       moe.group_topk * (moe.num_experts / moe.num_groups), moe.group_topk);
  }
  if (moe.layer_offset >= moe.layer_freq) {
    return fmt::format("layer_offset {} is not below layer_freq {}", moe.layer_offset,
                       moe.layer_freq);
  }
  if (moe.router == RouterKind::kSinkhorn &&
      (moe.router_topk != 1 || moe.num_groups != 1 || moe.expert_bias || moe.aux_loss_coeff > 0)) {
    return "router sinkhorn balances by itself, to one expert; expected router_topk 1, and no "
           "groups, expert_bias or aux_loss_coeff";
  }
  if (moe.pad_to_capacity && moe.capacity_factor == 0) {
    return "pad_to_capacity needs a capacity_factor";
  }
  if (moe.shared_expert_gate && moe.shared_ffn_hidden_size == 0) {
    return "shared_expert_gate needs a shared_ffn_hidden_size";
  }
  return "";
}

MoeConfig MoeConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  MoeConfig moe;
  object.Integer("num_experts", moe.num_experts, 1, kMaxExperts, Need::kRequired);
  object.Integer("router_topk", moe.router_topk, 1, kMaxExperts);
  object.Integer("ffn_hidden_size", moe.ffn_hidden_size, 1, kMaxFfn, Need::kRequired);
  object.Integer("shared_ffn_hidden_size", moe.shared_ffn_hidden_size, 0, kMaxFfn);
  object.Boolean("shared_expert_gate", moe.shared_expert_gate);
  object.Integer("first_k_dense", moe.first_k_dense, 0, kMaxLayers);
  object.Integer("layer_freq", moe.layer_freq, 1, kMaxLayers);
  object.Integer("layer_offset", moe.layer_offset, 0, kMaxLayers);
  object.Choice("router", moe.router, kRouterNames);
  object.Choice("score", moe.score, kScoreNames);
  object.Boolean("pre_softmax", moe.pre_softmax);
  object.Boolean("norm_topk", moe.norm_topk);
  object.Number("topk_scaling_factor", moe.topk_scaling_factor, 1e-6, kMaxFactor);
  object.Integer("num_groups", moe.num_groups, 1, kMaxExpertGroups);
  object.Integer("group_topk", moe.group_topk, 1, kMaxExpertGroups);
  object.Choice("group_score", moe.group_score, kGroupScoreNames);
  object.Boolean("router_bias", moe.router_bias);
  object.Number("logit_soft_cap", moe.logit_soft_cap, 0.0, kMaxFactor);
  object.Boolean("expert_bias", moe.expert_bias);
  object.Number("bias_update_rate", moe.bias_update_rate, 0.0, 1.0);
  object.Number("aux_loss_coeff", moe.aux_loss_coeff, 0.0, kMaxFactor);
  object.Number("z_loss_coeff", moe.z_loss_coeff, 0.0, kMaxFactor);
  object.Number("capacity_factor", moe.capacity_factor, 0.0, kMaxFactor);
  object.Choice("drop_policy", moe.drop_policy, kDropPolicyNames);
  object.Boolean("pad_to_capacity", moe.pad_to_capacity);
  object.Finish();
  if (const std::string fault = FaultOf(moe); !fault.empty()) {
    throw InputError(fmt::format("{}: {}", where, fault));
  }
  return moe;
}

nlohmann::json ToJson(const MoeConfig& moe) {
  return {{"num_experts", moe.num_experts},
          {"router_topk", moe.router_topk},
          {"ffn_hidden_size", moe.ffn_hidden_size},
          {"shared_ffn_hidden_size", moe.shared_ffn_hidden_size},
          {"shared_expert_gate", moe.shared_expert_gate},
          {"first_k_dense", moe.first_k_dense},
          {"layer_freq", moe.layer_freq},
          {"layer_offset", moe.layer_offset},
          {"router", NameIn(kRouterNames, moe.router)},
          {"score", NameIn(kScoreNames, moe.score)},
          {"pre_softmax", moe.pre_softmax},
          {"norm_topk", moe.norm_topk},
          {"topk_scaling_factor", moe.topk_scaling_factor},
          {"num_groups", moe.num_groups},
          {"group_topk", moe.group_topk},
          {"group_score", NameIn(kGroupScoreNames, moe.group_score)},
          {"router_bias", moe.router_bias},
          {"logit_soft_cap", moe.logit_soft_cap},
          {"expert_bias", moe.expert_bias},
          {"bias_update_rate", moe.bias_update_rate},
          {"aux_loss_coeff", moe.aux_loss_coeff},
          {"z_loss_coeff", moe.z_loss_coeff},
          {"capacity_factor", moe.capacity_factor},
          {"drop_policy", NameIn(kDropPolicyNames, moe.drop_policy)},
          {"pad_to_capacity", moe.pad_to_capacity}};
}

RoutingConfig RoutingConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  RoutingConfig routing;
  object.Boolean("force_balance", routing.force_balance);
  object.Number("imbalance_factor", routing.imbalance_factor, 1.0, kMaxFactor);
  object.Finish();
  return routing;
}

nlohmann::json ToJson(const RoutingConfig& routing) {
  return {{"force_balance", routing.force_balance}, {"imbalance_factor", routing.imbalance_factor}};
}

}  // namespace trimtab

#include "engine/config/model/moe_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/model/model_config.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

MoeConfig EverythingSet() {
  return {.num_experts = 16,
          .router_topk = 4,
          .ffn_hidden_size = 96,
          .shared_ffn_hidden_size = 192,
          .shared_expert_gate = true,
          .first_k_dense = 2,
          .layer_freq = 3,
          .layer_offset = 1,
          .router = RouterKind::kTopK,
          .score = RouterScore::kSigmoid,
          .pre_softmax = true,
          .norm_topk = true,
          .topk_scaling_factor = 2.5,
          .num_groups = 4,
          .group_topk = 2,
          .group_score = GroupScore::kSumOfTopTwo,
          .router_bias = true,
          .logit_soft_cap = 30,
          .expert_bias = true,
          .bias_update_rate = 0.002,
          .aux_loss_coeff = 0.01,
          .z_loss_coeff = 0.001,
          .capacity_factor = 1.25,
          .drop_policy = DropPolicy::kPosition,
          .pad_to_capacity = true};
}

/// Mixtral 8x7B (Jiang et al., arXiv:2401.04088).
ModelConfig Mixtral() {
  ModelConfig model = LoadModelConfig("llama2-7b");
  model.num_layers = 32;
  model.num_kv_heads = 8;
  model.ffn_hidden_size = 14336;
  model.moe = {.num_experts = 8, .router_topk = 2, .ffn_hidden_size = 14336};
  return model;
}

TEST(MoeConfig, CountsLayersWithExperts) {
  for (const int64_t freq : {1, 2, 3, 5}) {
    for (int64_t offset = 0; offset < freq; ++offset) {
      for (const int64_t first : {0, 1, 4, 7}) {
        MoeConfig moe = EverythingSet();
        moe.layer_freq = freq;
        moe.layer_offset = offset;
        moe.first_k_dense = first;
        int64_t expected = 0;
        for (int64_t layers = 0; layers < 12; ++layers) {
          EXPECT_EQ(moe.moe_layers(layers), expected) << freq << offset << first << " " << layers;
          expected += moe.is_moe_layer(layers) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_EQ(MoeConfig().moe_layers(5), 0);
}

TEST(MoeConfig, JsonRoundTrips) {
  const MoeConfig moe = EverythingSet();
  EXPECT_EQ(FaultOf(moe), "");
  EXPECT_EQ(MoeConfigFromJson(ToJson(moe), "f: $"), moe);
  const RoutingConfig routing = {.force_balance = true, .imbalance_factor = 1.5};
  EXPECT_EQ(RoutingConfigFromJson(ToJson(routing), "f: $"), routing);
  ModelConfig model = Mixtral();
  model.moe = moe;
  EXPECT_EQ(ModelConfigFromJson(ToJson(model), "f: $"), model);
  EXPECT_FALSE(ToJson(LoadModelConfig("gpt2-tiny")).contains("moe"));
}

TEST(MoeConfig, LayersWithExperts) {
  MoeConfig moe = {.num_experts = 4, .ffn_hidden_size = 8};
  EXPECT_TRUE(moe.is_moe_layer(0));
  moe.first_k_dense = 3;
  EXPECT_FALSE(moe.is_moe_layer(2));
  EXPECT_TRUE(moe.is_moe_layer(3));
  moe = {.num_experts = 4, .ffn_hidden_size = 8, .layer_freq = 2, .layer_offset = 1};
  EXPECT_FALSE(moe.is_moe_layer(0));
  EXPECT_TRUE(moe.is_moe_layer(1));
  EXPECT_FALSE(MoeConfig{}.is_moe_layer(0));
}

TEST(MoeConfig, CapacityOfASequence) {
  MoeConfig moe = {.num_experts = 8, .router_topk = 2, .ffn_hidden_size = 8};
  EXPECT_EQ(moe.capacity(100), 100) << "no limit";
  moe.capacity_factor = 1.0;
  EXPECT_EQ(moe.capacity(100), 25);
  EXPECT_EQ(moe.capacity(101), 26);
  moe.capacity_factor = 1.5;
  EXPECT_EQ(moe.capacity(100), 38);
  moe.capacity_factor = 8;
  EXPECT_EQ(moe.capacity(100), 100) << "an expert has a token once";
}

TEST(MoeConfig, CountsParametersAsPublished) {
  // The elements of the published weights, and of those what a token uses.
  EXPECT_EQ(Mixtral().parameter_count(), 46'702'792'704);
  EXPECT_EQ(Mixtral().active_parameter_count(), 12'879'925'248);
  const ModelConfig dense = LoadModelConfig("llama2-7b");
  EXPECT_EQ(dense.active_parameter_count(), dense.parameter_count());
}

TEST(MoeConfig, CountsEveryPart) {
  ModelConfig model = LoadModelConfig("llama-tiny");  // C 64, F 192, two layers
  const int64_t dense = model.parameter_count();
  const int64_t dense_mlp = 3 * 64 * 192;
  model.moe = {.num_experts = 4,
               .router_topk = 2,
               .ffn_hidden_size = 48,
               .shared_ffn_hidden_size = 32,
               .shared_expert_gate = true,
               .first_k_dense = 1,
               .router_bias = true,
               .expert_bias = true};
  const int64_t router = 4 * 64 + 4 + 4;
  const int64_t shared = 3 * 64 * 32 + 64;
  EXPECT_EQ(model.parameter_count(), dense - dense_mlp + 4 * 3 * 64 * 48 + router + shared);
  EXPECT_EQ(model.active_parameter_count(), model.parameter_count() - 2 * 3 * 64 * 48);
  EXPECT_EQ(model.active_mlp_weights(), dense_mlp + 2 * 3 * 64 * 48 + 4 * 64 + 3 * 64 * 32 + 64);
}

TEST(MoeConfig, FaultsAreNamed) {
  const auto fault = [](const std::function<void(MoeConfig&)>& change) {
    MoeConfig moe = {.num_experts = 8, .router_topk = 2, .ffn_hidden_size = 16};
    change(moe);
    return FaultOf(moe);
  };
  EXPECT_EQ(fault([](MoeConfig&) {}), "");
  EXPECT_EQ(fault([](MoeConfig& m) { m.router_topk = 0; }), "router_topk is 0; must be at least 1");
  EXPECT_EQ(fault([](MoeConfig& m) { m.num_groups = 3; }),
            "num_experts 8 is not divisible by num_groups 3");
  EXPECT_EQ(fault([](MoeConfig& m) { m.group_topk = 2; }),
            "group_topk 2 is more than num_groups 1");
  EXPECT_EQ(fault([](MoeConfig& m) {
              m.num_groups = 8;
              m.group_topk = 1;
            }),
            "router_topk 2 is more than the 1 experts of 1 groups");
  EXPECT_EQ(fault([](MoeConfig& m) { m.layer_offset = 1; }),
            "layer_offset 1 is not below layer_freq 1");
  EXPECT_EQ(fault([](MoeConfig& m) { m.router = RouterKind::kSinkhorn; }),
            "router sinkhorn balances by itself, to one expert; expected router_topk 1, and no "
            "groups, expert_bias or aux_loss_coeff");
  EXPECT_EQ(fault([](MoeConfig& m) { m.pad_to_capacity = true; }),
            "pad_to_capacity needs a capacity_factor");
  EXPECT_EQ(fault([](MoeConfig& m) { m.shared_expert_gate = true; }),
            "shared_expert_gate needs a shared_ffn_hidden_size");
}

TEST(MoeConfig, RefusesWhatContradictsItself) {
  nlohmann::json json = ToJson(MoeConfig{.num_experts = 8, .ffn_hidden_size = 16});
  json["router_topk"] = 9;
  EXPECT_EQ(ErrorText<InputError>([&json] { MoeConfigFromJson(json, "m.json: $.moe"); }),
            "m.json: $.moe: router_topk 9 is more than num_experts 8");
  json["router_topk"] = 2;
  json["score"] = "softmin";
  EXPECT_EQ(ErrorText<InputError>([&json] { MoeConfigFromJson(json, "m.json: $.moe"); }),
            "m.json: $.moe.score: expected one of softmax, sigmoid, got \"softmin\"; did you mean "
            "'softmax'?");
}

}  // namespace
}  // namespace trimtab

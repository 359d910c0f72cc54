#include "engine/config/model/layer_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/config/model/model_config.h"

namespace trimtab {
namespace {

ModelConfig SmallModel() {
  return {.vocab_size = 61,
          .hidden_size = 32,
          .num_layers = 6,
          .num_heads = 4,
          .num_kv_heads = 2,
          .ffn_hidden_size = 48,
          .max_sequence_length = 16,
          .norm = NormKind::kRmsNorm,
          .activation = ActivationKind::kSwiGlu,
          .position = PositionKind::kRope,
          .bias = false};
}

TEST(LayerSpec, LayersOfAPlainModelAreEqual) {
  const ModelConfig model = SmallModel();
  for (int64_t i = 1; i < model.num_layers; ++i) EXPECT_EQ(model.layer(i), model.layer(0));
  const LayerSpec layer = model.layer(0);
  const AttentionSpec& attention = std::get<AttentionSpec>(layer.mixer);
  EXPECT_EQ(attention.heads, model.num_heads);
  EXPECT_EQ(attention.qkv_size(), model.qkv_size());
  EXPECT_EQ(attention.rotary->theta, model.rope_theta);
  EXPECT_EQ(attention.query_key_norm, QueryKeyNorm::kNone);
  EXPECT_FALSE(layer.has_experts());
}

TEST(LayerSpec, WindowsAndBasesOfRotaryPositionsDifferByLayer) {
  ModelConfig model = SmallModel();
  model.sliding_window = 8;
  model.full_attention_period = 3;
  model.window_rope_theta = 1e4;
  model.rope_theta = 1e6;
  model.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 8};
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const bool full = i == 2 || i == 5;
    const LayerSpec layer = model.layer(i);
    EXPECT_EQ(layer, model.layer(full ? 2 : 0)) << i;
    EXPECT_EQ(layer.attention().window, full ? 0 : 8) << i;
    EXPECT_EQ(layer.attention().rotary->theta, full ? 1e6 : 1e4) << i;
    EXPECT_EQ(layer.attention().rotary->scaling.kind,
              full ? RopeScalingKind::kLinear : RopeScalingKind::kNone)
        << i;
  }
  EXPECT_NE(model.layer(0), model.layer(2));
  // Without a base of their own, layers with a window turn as the others do.
  model.window_rope_theta = 0;
  EXPECT_EQ(model.layer(0).attention().rotary, model.layer(2).attention().rotary);
}

TEST(LayerSpec, LayersWithExpertsDifferFromDenseOnes) {
  ModelConfig model = SmallModel();
  model.moe = {.num_experts = 4, .ffn_hidden_size = 24, .shared_ffn_hidden_size = 40};
  model.moe.layer_freq = 2;
  model.moe.layer_offset = 1;
  EXPECT_FALSE(model.layer(0).has_experts());
  const LayerSpec layer = model.layer(1);
  ASSERT_TRUE(layer.has_experts());
  const MoeSpec& moe = std::get<MoeSpec>(layer.mlp);
  EXPECT_EQ(moe.expert.ffn_hidden_size, 24);
  EXPECT_EQ(moe.shared.ffn_hidden_size, 40);
  EXPECT_EQ(moe.moe, model.moe);
  EXPECT_EQ(model.layer(3), layer);
}

TEST(LayerSpec, LatentAttentionHasTheHeadsOfItsModel) {
  ModelConfig model = SmallModel();
  model.latent = {.q_lora_rank = 12,
                  .kv_lora_rank = 8,
                  .qk_nope_head_dim = 4,
                  .qk_rope_head_dim = 2,
                  .v_head_dim = 5};
  const LayerSpec layer = model.layer(0);
  const LatentSpec& latent = std::get<LatentSpec>(layer.mixer);
  EXPECT_EQ(latent.latent, model.latent);
  EXPECT_EQ(layer.attention(), latent.heads);
  EXPECT_EQ(latent.heads.head_size, model.head_size());
  EXPECT_EQ(latent.heads.value_size, model.value_size());
}

TEST(LayerSpec, OnlyDeepNormScalesTheStream) {
  ModelConfig model = SmallModel();
  EXPECT_EQ(model.layer(0).residual.stream_scale, 1.0f);
  model.block = BlockKind::kDeepNorm;
  EXPECT_EQ(model.layer(0).residual.stream_scale, std::sqrt(12.0f));
}

}  // namespace
}  // namespace trimtab

#include "engine/config/model/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(ModelConfig, DerivedSizes) {
  const ModelConfig llama = LoadModelConfig("llama3-8b");
  EXPECT_EQ(llama.head_size(), 128);
  EXPECT_EQ(llama.qkv_size(), 4096 + 2 * 1024);
  EXPECT_EQ(llama.fc1_size(), 2 * 14336);
  const ModelConfig gpt = LoadModelConfig("gpt2-124m");
  EXPECT_EQ(gpt.qkv_size(), 3 * 768);
  EXPECT_EQ(gpt.fc1_size(), 3072);
  EXPECT_EQ(gpt.padded_vocab_size(1), 50304);
  EXPECT_EQ(gpt.padded_vocab_size(8), 51200);
}

TEST(ModelConfig, JsonRoundTripsForEveryPreset) {
  for (const std::string& name : ModelPresetNames()) {
    const ModelConfig model = LoadModelConfig(name);
    EXPECT_EQ(ModelConfigFromJson(ToJson(model), "f: $"), model) << name;
    // Also through text, where doubles must keep every bit.
    EXPECT_EQ(ModelConfigFromJson(nlohmann::json::parse(ToJson(model).dump()), "f: $"), model);
  }
}

// Latent attention goes with few of these: presets have it, and they too are read back.
TEST(ModelConfig, JsonRoundTripsForEveryField) {
  ModelConfig model = LoadModelConfig("llama-tiny");
  model.activation = ActivationKind::kGeGluErf;
  model.position = PositionKind::kNone;
  model.block = BlockKind::kSandwich;
  model.head_dim = 24;
  model.qkv_bias = true;
  model.mlp_bias = false;
  model.norm_bias = false;
  model.norm_weight_plus_one = true;
  model.embedding_norm = true;
  model.embedding_scale = 8.25;
  model.embedding_dim = 32;
  model.final_norm = false;
  model.output_bias = true;
  model.logit_scale = 0.5;
  model.logit_soft_cap = 30;
  model.attention_soft_cap = 50;
  model.attention_scale = 1.0 / 12.0;
  model.query_key_norm = true;
  model.query_key_norm_whole = true;
  model.window_rope_theta = 1e7;
  model.qkv_clip = 8;
  model.attention_sinks = true;
  model.mtp_modules = 2;
  model.position_offset = 2;
  model.rotary_fraction = 0.25;
  model.rotary_interleaved = true;
  model.rope_scaling = {.kind = RopeScalingKind::kYarn,
                        .factor = 40,
                        .original_length = 4096,
                        .low_frequency = 2,
                        .high_frequency = 3,
                        .beta_fast = 31,
                        .beta_slow = 2,
                        .truncate = false,
                        .attention_factor = 1.25};
  model.sliding_window = 16;
  model.full_attention_period = 2;
  const nlohmann::json json = ToJson(model);
  EXPECT_EQ(ModelConfigFromJson(nlohmann::json::parse(json.dump()), "f: $"), model);
  // Each is written because it differs from the default, and no other key is.
  EXPECT_EQ(json.size(), ToJson(ModelConfig{}).size() + 27);
}

// What a file says may contradict itself: that is the file's fault, and no layout's.
TEST(ModelConfig, AFileThatContradictsItselfIsRefusedWithItsPlace) {
  nlohmann::json json = ToJson(LoadModelConfig("llama-tiny"));
  json["num_kv_heads"] = 3;
  EXPECT_EQ(
      ErrorText<InputError>([&json] { ModelConfigFromJson(json, "m.json: $"); }),
      "m.json: $: heads-divisible-by-kv-heads: num_heads 4 is not divisible by num_kv_heads 3");
  json = ToJson(LoadModelConfig("deepseek-v3"));
  json["latent_attention"]["qk_rope_head_dim"] = 31;
  EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromJson(json, "m.json: $"); }),
            "m.json: $: latent-attention-consistent: latent_attention: qk_rope_head_dim is 31, "
            "expected an even number of at least 2");
}

TEST(ModelConfig, LayersWithAndWithoutAWindow) {
  ModelConfig model = LoadModelConfig("llama-tiny");
  EXPECT_EQ(model.window(0), 0);
  model.sliding_window = 16;
  EXPECT_EQ(model.window(1), 16);
  model.full_attention_period = 2;
  EXPECT_EQ(model.window(0), 16);
  EXPECT_EQ(model.window(1), 0);
}

TEST(ModelConfig, OwnFileWithDefaults) {
  const ModelConfig model = LoadModelConfig("testdata/configs/models/own.json");
  EXPECT_EQ(model.name, "own-model");
  EXPECT_EQ(model.num_kv_heads, 2);
  EXPECT_EQ(model.norm, NormKind::kRmsNorm);
  EXPECT_EQ(model.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(model.position, PositionKind::kRope);
  const ModelConfig least = ModelConfigFromJson({{"vocab_size", 9},
                                                 {"hidden_size", 8},
                                                 {"num_layers", 1},
                                                 {"num_heads", 2},
                                                 {"max_sequence_length", 4}},
                                                "f: $");
  EXPECT_EQ(least.num_kv_heads, 2);
  EXPECT_EQ(least.ffn_hidden_size, 32);
}

TEST(ModelConfig, MistypedFieldsNameThePath) {
  nlohmann::json json = ToJson(LoadModelConfig("gpt2-tiny"));
  json["hidden_size"] = "64";
  EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromJson(json, "m.json: $"); }),
            "m.json: $.hidden_size: expected an integer from 1 to 1048576, got \"64\"");
  json["hidden_size"] = 64;
  json["num_header"] = 4;
  EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromJson(json, "m.json: $"); }),
            "m.json: $.num_header: unknown key; did you mean 'num_heads'?");
}

}  // namespace
}  // namespace trimtab

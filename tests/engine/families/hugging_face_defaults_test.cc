// What the keys that a config.json leaves out stand for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/hugging_face.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

ModelConfig Read(const nlohmann::json& json) {
  return ModelConfigFromHuggingFace(json, "c.json: $");
}

// 64 heads of 80, without a key that may be missing.
nlohmann::json OnlyWhatIsRequired(const std::string& type) {
  nlohmann::json json = {{"model_type", type},
                         {"vocab_size", 1000},
                         {"hidden_size", 5120},
                         {"num_hidden_layers", 4},
                         {"num_attention_heads", 64}};
  if (type == "gpt2" || type == "opt") json["max_position_embeddings"] = 512;
  for (const char* ungated : {"gpt2", "gptj", "gpt_neox", "opt", "bloom", "mpt", "falcon",
                              "RefinedWeb", "RefinedWebModel", "nemotron", "dbrx"}) {
    if (type == ungated) return json;
  }
  json["intermediate_size"] = 7000;
  return json;
}

nlohmann::json WithExperts(const std::string& type) {
  nlohmann::json json = OnlyWhatIsRequired(type);
  if (type == "gpt_oss") json.update({{"num_local_experts", 16}, {"num_experts_per_tok", 3}});
  if (type == "dbrx") {
    json["ffn_config"] = {{"ffn_hidden_size", 7000}, {"moe_num_experts", 16}, {"moe_top_k", 3}};
  }
  if (type.starts_with("deepseek")) {
    json.update({{"n_routed_experts", 16},
                 {"num_experts_per_tok", 3},
                 {"moe_intermediate_size", 500},
                 {"kv_lora_rank", 40},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 16}});
  }
  return json;
}

// Of configuration_TYPE.py of Transformers.
struct Defaults {
  const char* type;
  int64_t kv_heads, head_size, ffn, positions, window;
  double epsilon, theta, fraction, init_std;
  ActivationKind activation;
  bool tied, qkv_bias, mlp_bias;
};

TEST(HuggingFace, MissingKeysStandForTheDefaultsOfTheirClass) {
  using enum ActivationKind;
  const Defaults table[] = {
      {"gpt2", 64, 80, 20480, 512, 0, 1e-5, 1e4, 1, 0.02, kGelu, true, true, true},
      {"gptj", 64, 80, 20480, 2048, 0, 1e-5, 1e4, 0.8, 0.02, kGelu, false, false, true},
      {"gpt_neox", 64, 80, 24576, 2048, 0, 1e-5, 1e4, 0.25, 0.02, kGeluErf, false, true, true},
      {"opt", 64, 80, 3072, 512, 0, 1e-5, 1e4, 1, 0.02, kRelu, true, true, true},
      {"bloom", 64, 80, 20480, 2048, 0, 1e-5, 1e4, 1, 0.02, kGelu, true, true, true},
      {"mpt", 64, 80, 20480, 2048, 0, 1e-5, 1e4, 1, 0.02, kGeluErf, true, false, false},
      {"falcon", 1, 80, 20480, 2048, 0, 1e-5, 1e4, 1, 0.02, kGeluErf, true, false, false},
      {"RefinedWeb", 64, 80, 20480, 2048, 0, 1e-5, 1e4, 1, 0.02, kGeluErf, true, false, false},
      {"RefinedWebModel", 1, 80, 20480, 2048, 0, 1e-5, 1e4, 1, 0.02, kGeluErf, true, false, false},
      {"nemotron", 64, 80, 24576, 4096, 0, 1e-5, 1e4, 0.5, 0.0134, kSquaredRelu, false, false,
       false},
      {"llama", 64, 80, 7000, 2048, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"mistral", 8, 80, 7000, 131072, 4096, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"qwen2", 32, 80, 7000, 32768, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, true, false},
      {"qwen3", 32, 128, 7000, 32768, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"gemma2", 4, 256, 7000, 8192, 4096, 1e-6, 1e4, 1, 0.02, kGeGlu, true, false, false},
      {"gemma3_text", 4, 256, 7000, 131072, 4096, 1e-6, 1e6, 1, 0.02, kGeGlu, true, false, false},
      {"olmo2", 64, 80, 7000, 2048, 0, 1e-5, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"olmo3", 64, 80, 7000, 2048, 4096, 1e-5, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"glm", 2, 128, 7000, 131072, 0, 1.5625e-7, 1e4, 0.5, 0.02, kSwiGlu, false, true, false},
      {"glm4", 2, 128, 7000, 131072, 0, 1.5625e-7, 1e4, 0.5, 0.02, kSwiGlu, false, true, false},
      {"mixtral", 8, 80, 7000, 131072, 0, 1e-5, 1e6, 1, 0.02, kSwiGlu, false, false, false},
      {"qwen3_moe", 4, 80, 7000, 32768, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"qwen2_moe", 16, 80, 7000, 32768, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, true, false},
      {"deepseek_v2", 64, 24, 7000, 2048, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"deepseek_v3", 64, 24, 7000, 4096, 0, 1e-6, 1e4, 1, 0.02, kSwiGlu, false, false, false},
      {"gpt_oss", 8, 64, 7000, 131072, 128, 1e-5, 150000, 1, 0.02, kClampedSwiGlu, false, true,
       true},
      {"dbrx", 1, 80, 7000, 2048, 0, 1e-5, 1e4, 1, 0.02, kSwiGlu, false, false, false},
  };
  for (const Defaults& expected : table) {
    SCOPED_TRACE(expected.type);
    const ModelConfig model = Read(WithExperts(expected.type));
    EXPECT_EQ(model.num_kv_heads, expected.kv_heads);
    EXPECT_EQ(model.head_size(), expected.head_size);
    EXPECT_EQ(model.ffn_hidden_size, expected.ffn);
    EXPECT_EQ(model.max_sequence_length, expected.positions);
    EXPECT_EQ(model.window(0), expected.window);
    EXPECT_EQ(model.norm_epsilon, expected.epsilon);
    EXPECT_EQ(model.rope_theta, expected.theta);
    EXPECT_EQ(model.rotary_fraction, expected.fraction);
    EXPECT_EQ(model.init_std, expected.init_std);
    EXPECT_EQ(model.activation, expected.activation);
    EXPECT_EQ(model.tied_embeddings, expected.tied);
    EXPECT_EQ(model.has_qkv_bias(), expected.qkv_bias);
    EXPECT_EQ(model.has_mlp_bias(), expected.mlp_bias);
  }
}

struct ExpertDefaults {
  const char* type;
  int64_t experts, chosen, ffn, shared_ffn, first_dense, groups, group_topk;
  double scaling, aux_loss;
  bool norm;
};

TEST(HuggingFace, MissingKeysOfExpertsStandForTheDefaultsOfTheirClass) {
  const ExpertDefaults table[] = {
      {"mixtral", 8, 2, 7000, 0, 0, 1, 1, 1, 0.001, false},
      {"qwen3_moe", 128, 8, 768, 0, 0, 1, 1, 1, 0.001, false},
      {"qwen2_moe", 60, 4, 1408, 5632, 0, 1, 1, 1, 0.001, false},
      {"deepseek_v2", 16, 3, 500, 1000, 0, 1, 1, 1, 0.001, false},
      {"deepseek_v3", 16, 3, 500, 500, 3, 8, 4, 2.5, 0.0001, true},
      {"gpt_oss", 16, 3, 7000, 0, 0, 1, 1, 1, 0.9, false},
      {"dbrx", 16, 3, 7000, 0, 0, 1, 1, 1, 0.01, false},
  };
  for (const ExpertDefaults& expected : table) {
    SCOPED_TRACE(expected.type);
    const MoeConfig moe = Read(WithExperts(expected.type)).moe;
    EXPECT_EQ(moe.num_experts, expected.experts);
    EXPECT_EQ(moe.router_topk, expected.chosen);
    EXPECT_EQ(moe.ffn_hidden_size, expected.ffn);
    EXPECT_EQ(moe.shared_ffn_hidden_size, expected.shared_ffn);
    EXPECT_EQ(moe.first_k_dense, expected.first_dense);
    EXPECT_EQ(moe.num_groups, expected.groups);
    EXPECT_EQ(moe.group_topk, expected.group_topk);
    EXPECT_EQ(moe.topk_scaling_factor, expected.scaling);
    EXPECT_EQ(moe.aux_loss_coeff, expected.aux_loss);
    EXPECT_EQ(moe.norm_topk, expected.norm);
    EXPECT_EQ(moe.layer_freq, 1);
  }
}

TEST(HuggingFace, DeepSeeksMissingRankAndExpertsAreNotItsNulls) {
  nlohmann::json json = WithExperts("deepseek_v2");
  EXPECT_EQ(Read(json).latent.q_lora_rank, 1536);
  json["q_lora_rank"] = nullptr;
  json["n_shared_experts"] = nullptr;
  EXPECT_EQ(Read(json).latent.q_lora_rank, 0);
  EXPECT_EQ(Read(json).moe.shared_ffn_hidden_size, 0);
}

TEST(HuggingFace, GptOssScalesItsPositionsUnlessNull) {
  nlohmann::json json = WithExperts("gpt_oss");
  const RopeScaling published = LoadModelConfig("gpt-oss-20b").rope_scaling;
  EXPECT_EQ(Read(json).rope_scaling, published);
  json["rope_scaling"] = nullptr;
  json["head_dim"] = nullptr;
  EXPECT_EQ(Read(json).rope_scaling, RopeScaling{});
  EXPECT_EQ(Read(json).head_size(), 80);
}

// Layers from max_window_layers on have a window: 28 where it is missing.
TEST(HuggingFace, QwensWindowsAreInAllLayersOrNone) {
  nlohmann::json json = OnlyWhatIsRequired("qwen2");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 512;
  EXPECT_EQ(Read(json).sliding_window, 0);
  json["max_window_layers"] = 0;
  EXPECT_EQ(Read(json).sliding_window, 512);
  json.erase("max_window_layers");
  json["num_hidden_layers"] = 29;
  EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
            "c.json: $.max_window_layers: a sliding window in the last layers only is not "
            "supported; expected 0 or at least 29, the number of layers, got 28");
}

TEST(HuggingFace, OptHasItsOwnNameOfTheStandardDeviation) {
  nlohmann::json json = OnlyWhatIsRequired("opt");
  json["init_std"] = 0.006;
  const ModelConfig model = Read(json);
  EXPECT_EQ(model.init_std, 0.006);
  EXPECT_EQ(Read(ToHuggingFace(model)), model);
}

}  // namespace
}  // namespace trimtab

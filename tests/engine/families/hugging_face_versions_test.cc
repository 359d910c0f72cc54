// The config.json of each model type's default configuration, as Transformers 4 and 5 save it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_differences.h"
#include "engine/families/hugging_face.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

const std::string kFolder = "testdata/configs/hugging_face/";

ModelConfig Read(const nlohmann::json& json, std::vector<std::string>* notes = nullptr) {
  return ModelConfigFromHuggingFace(json, "c.json: $", notes);
}

nlohmann::json Saved(int version, const std::string& type) {
  return ReadJsonFile(kFolder + "transformers" + std::to_string(version) + "/" + type + ".json");
}

// Defaults of the classes; DeepSeek-V2 with 6 chosen experts; its class has none.
struct Default {
  const char* type;
  int64_t vocab, hidden, layers, heads, kv_heads, head_size, ffn, positions;
  double theta;
  int64_t rotary_size, window, period, experts, chosen, expert_ffn;
  bool tied;
};
constexpr Default kDefaults[] = {
    {"gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 1e4, 64, 0, 0, 0, 2, 0, true},
    {"gptj", 50400, 4096, 28, 16, 16, 256, 16384, 2048, 1e4, 64, 0, 0, 0, 2, 0, false},
    {"gpt_neox", 50432, 6144, 44, 64, 64, 96, 24576, 2048, 1e4, 24, 0, 0, 0, 2, 0, false},
    {"opt", 50272, 768, 12, 12, 12, 64, 3072, 2048, 1e4, 64, 0, 0, 0, 2, 0, true},
    {"bloom", 250880, 64, 2, 8, 8, 8, 256, 2048, 1e4, 8, 0, 0, 0, 2, 0, true},
    {"mpt", 50368, 2048, 24, 16, 16, 128, 8192, 2048, 1e4, 128, 0, 0, 0, 2, 0, true},
    {"falcon", 65024, 4544, 32, 71, 1, 64, 18176, 2048, 1e4, 64, 0, 0, 0, 2, 0, true},
    {"nemotron", 256000, 6144, 32, 48, 48, 128, 24576, 4096, 1e4, 64, 0, 0, 0, 2, 0, false},
    {"llama", 32000, 4096, 32, 32, 32, 128, 11008, 2048, 1e4, 128, 0, 0, 0, 2, 0, false},
    {"mistral", 32000, 4096, 32, 32, 8, 128, 14336, 131072, 1e4, 128, 4096, 0, 0, 2, 0, false},
    {"qwen2", 151936, 4096, 32, 32, 32, 128, 22016, 32768, 1e4, 128, 0, 0, 0, 2, 0, false},
    {"qwen3", 151936, 4096, 32, 32, 32, 128, 22016, 32768, 1e4, 128, 0, 0, 0, 2, 0, false},
    {"gemma2", 256000, 2304, 26, 8, 4, 256, 9216, 8192, 1e4, 256, 4096, 2, 0, 2, 0, true},
    {"gemma3_text", 262208, 2304, 26, 8, 4, 256, 9216, 131072, 1e6, 256, 4096, 6, 0, 2, 0, true},
    {"olmo2", 50304, 4096, 32, 32, 32, 128, 11008, 2048, 1e4, 128, 0, 0, 0, 2, 0, false},
    {"olmo3", 50304, 4096, 32, 32, 32, 128, 11008, 2048, 1e4, 128, 4096, 4, 0, 2, 0, false},
    {"glm", 151552, 4096, 40, 32, 2, 128, 13696, 131072, 1e4, 64, 0, 0, 0, 2, 0, false},
    {"glm4", 151552, 4096, 40, 32, 2, 128, 13696, 131072, 1e4, 64, 0, 0, 0, 2, 0, false},
    {"mixtral", 32000, 4096, 32, 32, 8, 128, 14336, 131072, 1e6, 128, 0, 0, 8, 2, 14336, false},
    {"qwen2_moe", 151936, 2048, 24, 16, 16, 128, 5632, 32768, 1e4, 128, 0, 0, 60, 4, 1408, false},
    {"qwen3_moe", 151936, 2048, 24, 32, 4, 64, 6144, 32768, 1e4, 64, 0, 0, 128, 8, 768, false},
    {"deepseek_v2", 32000, 4096, 32, 32, 32, 192, 11008, 2048, 1e4, 64, 0, 0, 64, 6, 1407, false},
    {"deepseek_v3", 129280, 7168, 61, 128, 128, 192, 18432, 4096, 1e4, 64, 0, 0, 256, 8, 2048,
     false},
    {"gpt_oss", 201088, 2880, 36, 64, 8, 64, 2880, 131072, 150000, 64, 128, 2, 128, 4, 2880, false},
    {"dbrx", 32000, 2048, 24, 16, 1, 128, 3584, 2048, 1e4, 128, 0, 0, 4, 1, 3584, false},
};

TEST(HuggingFaceVersions, DefaultsOfEveryClassAreReadRight) {
  for (const Default& expected : kDefaults) {
    for (const int version : {4, 5}) {
      SCOPED_TRACE(std::string(expected.type) + " of Transformers " + std::to_string(version));
      const ModelConfig model = Read(Saved(version, expected.type));
      EXPECT_EQ(model.vocab_size, expected.vocab);
      EXPECT_EQ(model.hidden_size, expected.hidden);
      EXPECT_EQ(model.num_layers, expected.layers);
      EXPECT_EQ(model.num_heads, expected.heads);
      EXPECT_EQ(model.num_kv_heads, expected.kv_heads);
      EXPECT_EQ(model.head_size(), expected.head_size);
      EXPECT_EQ(model.ffn_hidden_size, expected.ffn);
      EXPECT_EQ(model.max_sequence_length, expected.positions);
      const bool larger = version == 5 && model.full_attention_period == 4;  // of OLMo 3
      EXPECT_EQ(model.rope_theta, larger ? 5e5 : expected.theta);
      EXPECT_EQ(model.rotary_size(), expected.rotary_size);
      EXPECT_EQ(model.sliding_window, expected.window);
      EXPECT_EQ(model.full_attention_period, expected.period);
      EXPECT_EQ(model.moe.num_experts, expected.experts);
      EXPECT_EQ(model.moe.router_topk, expected.chosen);
      EXPECT_EQ(model.moe.ffn_hidden_size, expected.expert_ffn);
      EXPECT_EQ(model.tied_embeddings, expected.tied);
    }
  }
}

TEST(HuggingFaceVersions, BothVersionsDescribeTheSameModelAndSoDoesItsExport) {
  std::set<std::string> tested;
  for (const Default& each : kDefaults) {
    SCOPED_TRACE(each.type);
    tested.insert(std::string(each.type) + ".json");
    const ModelConfig four = Read(Saved(4, each.type));
    const ModelConfig five = Read(Saved(5, each.type));
    for (const ModelDifference& difference : DifferencesOf(five, four)) {
      // Of OLMo 3 version 5 has a default of its own.
      if (difference.name == "rope_theta" && std::string(each.type) == "olmo3") continue;
      ADD_FAILURE() << difference.name << " is " << difference.found << ", not "
                    << difference.expected;
    }
    std::vector<std::string> notes;
    const ModelConfig again = Read(ToHuggingFace(four), &notes);
    EXPECT_TRUE(DifferencesOf(again, four).empty());
  }
  for (const char* version : {"transformers4", "transformers5"}) {
    for (const auto& file : std::filesystem::directory_iterator(kFolder + version)) {
      EXPECT_TRUE(tested.contains(file.path().filename().string())) << file.path();
    }
  }
}

TEST(HuggingFaceVersions, KeysThatChangeNothingAreNamedInOneLine) {
  std::vector<std::string> notes;
  nlohmann::json json = Saved(4, "llama");
  json.update({{"torch_dtype", "bfloat16"},
               {"id2label", {{"0", "LABEL_0"}}},
               {"unsloth_version", "2025.1"},
               {"rope_interleaved", false},
               {"problem_type", nullptr},
               {"a_key_of_tomorrow", nullptr}});
  EXPECT_EQ(Read(json, &notes), Read(Saved(4, "llama")));
  EXPECT_EQ(notes, std::vector<std::string>{
                       "keys that change no result are passed over: attention_dropout, "
                       "bos_token_id, eos_token_id, id2label, pretraining_tp, torch_dtype, "
                       "transformers_version, unsloth_version, use_cache"});
  json = Saved(5, "mpt");
  Read(json, &notes);
  EXPECT_NE(notes.front().find("attn_config.attn_pdrop"), std::string::npos);
}

// As found in the config.json of published models, beside the keys of the class.
TEST(HuggingFaceVersions, KeysOfPublishedFilesPass) {
  const std::pair<const char*, const char*> published[] = {
      {"gpt2", R"({"n_ctx": 1024, "_num_labels": 1, "output_past": true, "afn": null,
                   "task_specific_params": {"text-generation": {"do_sample": true}}})"},
      {"gptj", R"({"rotary": true, "scale_attn_weights": true, "gradient_checkpointing": false,
                   "tokenizer_class": "GPT2Tokenizer", "summary_type": "cls_index"})"},
      {"gpt_neox", R"({"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0,
                       "custom_pipelines": {"text-generation": {"impl": "a.B"}}})"},
      {"opt", R"({"prefix": "</s>", "output_projection": true, "activation_dropout": 0.0,
                  "torch_dtype": "float16"})"},
      {"bloom", R"({"n_inner": null, "masked_softmax_fusion": true, "bias_dropout_fusion": true,
                    "attention_softmax_in_fp32": true, "offset_alibi": 100, "unk_token_id": 0,
                    "skip_bias_add": true, "skip_bias_add_qkv": false, "seq_length": 2048})"},
      {"mpt", R"({"init_config": {"name": "kaiming_normal_"}, "auto_map": {"AutoConfig": "a.B"},
                  "tokenizer_name": "EleutherAI/gpt-neox-20b", "max_seq_len": 2048})"},
      {"falcon", R"({"apply_residual_connection_post_layernorm": false, "ff_factor": 4})"},
      {"llama", R"({"max_sequence_length": 2048, "rope_scaling": null, "pad_token_id": -1,
                    "quantization_config": null, "use_flash_attn": true, "num_labels": 1,
                    "torch_dtype": "float16", "_attn_implementation_autoset": true,
                    "_rope_scaling_adjustment": null, "sliding_window": null,
                    "use_sliding_window": false, "unsloth_fixed": true, "model_max_length": 4096,
                    "transformers.js_config": {"use_external_data_format": true}})"},
      {"mistral", R"({"attention_bias": false, "mlp_bias": false, "rope_scaling": null})"},
      {"mixtral", R"({"auto_map": null, "output_router_logits": false})"},
      {"qwen2", R"({"use_mrope": false, "attention_bias": true, "sliding_window": 131072,
                    "max_window_layers": 28, "bos_token_id": 151643})"},
      {"qwen3_moe", R"({"max_window_layers": 48, "head_dim": 128})"},
      {"gemma2", R"({"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid",
                     "sliding_window_size": 4096})"},
      {"deepseek_v2", R"({"aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1,
                          "seq_aux": true, "scoring_func": "softmax",
                          "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
                            "mscale": 0.707, "mscale_all_dim": 0.707, "type": "yarn",
                            "original_max_position_embeddings": 4096}})"},
      {"deepseek_v3", R"({"aux_loss_alpha": 0.001, "ep_size": 1, "num_nextn_predict_layers": 1,
                          "topk_method": "noaux_tc", "seq_aux": true, "scoring_func": "sigmoid",
                          "moe_layer_freq": 1,
                          "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}})"},
      {"gpt_oss", R"({"experts_per_token": 4, "initial_context_length": 4096,
                      "swiglu_limit": 7.0, "output_router_logits": false,
                      "quantization_config": {"quant_method": "mxfp4"}})"},
      {"dbrx", R"({"auto_map": {"AutoConfig": "a.B"}, "router_aux_loss_coef": null})"},
  };
  for (const auto& [type, keys] : published) {
    SCOPED_TRACE(type);
    nlohmann::json json = Saved(4, type);
    json.update(nlohmann::json::parse(keys));
    EXPECT_EQ(Read(json).vocab_size, json["vocab_size"]);
  }
}

TEST(HuggingFaceVersions, KeysThatMayChangeResultsAreRefusedByName) {
  const auto refused = [](const char* type, const nlohmann::json& more) {
    nlohmann::json json = Saved(4, type);
    json.update(more);
    return ErrorText<InputError>([&json] { Read(json); });
  };
  EXPECT_EQ(refused("llama", {{"a_key_of_tomorrow", 1}}),
            "c.json: $.a_key_of_tomorrow: unknown key, which may change what the model computes; "
            "expected no such key, or null");
  EXPECT_EQ(refused("llama", {{"mup", 1}, {"alibi_max", 8}}),
            "c.json: $.alibi_max, c.json: $.mup: unknown keys, which may change what the model "
            "computes; expected no such key, or null");
  EXPECT_EQ(refused("llama", {{"rope_interleaved", true}}),
            "c.json: $.rope_interleaved: another rope_interleaved is not supported; expected false "
            "or no such key, got true");
  EXPECT_EQ(refused("llama", {{"sliding_window", 4096}}),
            "c.json: $.sliding_window: another sliding_window is not supported; expected null or "
            "no such key, got 4096");
  EXPECT_EQ(refused("mistral", {{"attention_bias", true}}),
            "c.json: $.attention_bias: another attention_bias is not supported; expected false or "
            "no such key, got true");
  EXPECT_EQ(refused("gpt_oss", {{"swiglu_alpha", 1.5}}),
            "c.json: $.swiglu_alpha: another swiglu_alpha is not supported; expected 1.702 or no "
            "such key, got 1.5");
  EXPECT_EQ(refused("qwen3_moe", {{"num_local_experts", 6}}),
            "c.json: $.num_local_experts: expected 128, as num_experts says, got 6");
  EXPECT_EQ(refused("qwen3_moe", {{"mlp_only_layers", {3}}}),
            "c.json: $.mlp_only_layers: a list of other layers than the first is not supported; "
            "expected [0] or no such key, got an array of 1");
  EXPECT_EQ(refused("mpt", {{"attn_config", {{"attn_uses_sequence_id", true}}}}),
            "c.json: $.attn_config.attn_uses_sequence_id: another attn_uses_sequence_id is not "
            "supported; expected false or no such key, got true");
}

TEST(HuggingFaceVersions, ExpertsHaveThreeNames) {
  nlohmann::json json = Saved(4, "qwen3_moe");
  json.erase("num_experts");
  EXPECT_EQ(Read(json).moe.num_experts, 128);
  json["num_experts_per_tok"] = 2;
  json["num_local_experts"] = 6;
  EXPECT_EQ(Read(json).moe.num_experts, 6);
  json["num_experts"] = 6;
  EXPECT_EQ(Read(json).moe.num_experts, 6);
  json["mlp_only_layers"] = {0, 1};
  EXPECT_EQ(Read(json).moe.first_k_dense, 2);
  EXPECT_EQ(Read(ToHuggingFace(Read(json))), Read(json));
}

RopeScaling Scaled(const nlohmann::json& rope, std::vector<std::string>* notes = nullptr) {
  nlohmann::json json = Saved(4, "qwen3");
  json["rope_scaling"] = rope;
  return Read(json, notes).rope_scaling;
}

TEST(HuggingFaceVersions, RopeScalingHasItsKindUnderTwoNames) {
  const RopeScaling linear = {.kind = RopeScalingKind::kLinear, .factor = 2};
  std::vector<std::string> notes;
  EXPECT_EQ(Scaled({{"type", "linear"}, {"factor", 2.0}}), linear);
  EXPECT_EQ(Scaled({{"rope_type", "linear"}, {"factor", 2.0}}), linear);
  EXPECT_EQ(Scaled({{"type", "linear"}, {"rope_type", "linear"}, {"factor", 2.0}}), linear);
  EXPECT_EQ(Scaled({{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2.0}}, &notes), linear);
  EXPECT_EQ(notes.front(),
            "rope_scaling.rope_type 'linear' holds, not type 'yarn', as in Transformers");
  EXPECT_EQ(Scaled({{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 16}}, &notes), linear);
  EXPECT_NE(notes.front().find("rope_scaling.beta_fast"), std::string::npos);
}

// As published with DeepSeek-R1-0528-Qwen3-8B: the factor that it makes is 1.
TEST(HuggingFaceVersions, AttnFactorMultipliesYarnsOwn) {
  nlohmann::json rope = {{"attn_factor", 0.8782488562869419},
                         {"factor", 4},
                         {"original_max_position_embeddings", 32768},
                         {"rope_type", "yarn"}};
  std::vector<std::string> notes;
  EXPECT_NEAR(Scaled(rope, &notes).attention_factor, 1.0, 1e-12);
  EXPECT_EQ(notes.front(),
            "rope_scaling.attn_factor 0.8782488562869419 makes yarn's attention factor 1, as in "
            "YaRN's own code and vLLM; Transformers passes over it (1.13863)");
  rope["attention_factor"] = 1.25;
  EXPECT_EQ(Scaled(rope).attention_factor, 1.25);
  rope["mrope_section"] = {1, 2, 3};
  EXPECT_EQ(ErrorText<InputError>([&rope] { Scaled(rope); }),
            "c.json: $.rope_scaling.mrope_section: unknown key, which may change what the model "
            "computes; expected no such key, or null");
}

TEST(HuggingFaceVersions, RotaryPositionsOfEachTypeOfLayerDifferInTheirBase) {
  nlohmann::json json = Saved(5, "gemma2");
  const nlohmann::json rope = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  json["rope_parameters"] = {{"full_attention", rope}, {"sliding_attention", rope}};
  EXPECT_EQ(Read(json).rope_theta, 5e5);
  EXPECT_EQ(Read(json).window_rope_theta, 0);
  json["rope_parameters"]["sliding_attention"]["rope_theta"] = 1e4;
  EXPECT_EQ(Read(json).rope_theta, 5e5);
  EXPECT_EQ(Read(json).window_rope_theta, 1e4);
  json["rope_parameters"]["full_attention"] = {
      {"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}};
  EXPECT_EQ(Read(json).rope_scaling.factor, 8.0);
  EXPECT_EQ(Read(json).window_rope_theta, 1e4);
  json["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
  json["rope_parameters"]["sliding_attention"]["factor"] = 2.0;
  EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
            "c.json: $.rope_parameters.sliding_attention: rotary positions of layers with a window "
            "may differ from the others' in their base alone, and be unscaled; expected no more");
  json["rope_parameters"] = rope;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THROW(Read(json), InputError);
}

TEST(HuggingFaceVersions, LayerTypesSayWhichLayersHaveAWindow) {
  nlohmann::json json = Saved(5, "gemma2");
  nlohmann::json types = nlohmann::json::array();
  for (int i = 0; i < 26; ++i) types.push_back("sliding_attention");
  json["layer_types"] = types;
  EXPECT_EQ(Read(json).full_attention_period, 0);
  EXPECT_EQ(Read(json).sliding_window, 4096);
  for (int i = 5; i < 26; i += 6) types[static_cast<size_t>(i)] = "full_attention";
  json["layer_types"] = types;
  EXPECT_EQ(Read(json).full_attention_period, 6);
  json["layer_types"] = nlohmann::json(26, "full_attention");
  EXPECT_EQ(Read(json).sliding_window, 0);
}

// The version decides where the classes disagree.
TEST(HuggingFaceVersions, AMissingKeyIsTheDefaultOfItsVersion) {
  nlohmann::json json = Saved(4, "gpt_oss");
  json.erase("router_aux_loss_coef");
  EXPECT_EQ(Read(json).moe.aux_loss_coeff, 0.9);
  json["transformers_version"] = "5.0.0";
  EXPECT_EQ(Read(json).moe.aux_loss_coeff, 0.001);
}

TEST(HuggingFaceVersions, MptKeepsItsClipAndScales) {
  ModelConfig model = Read(Saved(4, "mpt"));
  model.qkv_clip = 6;
  model.attention_scale = 0.25;
  model.logit_scale = 0.5;
  const nlohmann::json json = ToHuggingFace(model);
  EXPECT_EQ(json["attn_config"]["clip_qkv"], 6.0);
  EXPECT_EQ(Read(json), model);
}

TEST(HuggingFaceVersions, AFolderWithoutANameIsCalledAfterItself) {
  const std::string folder = testing::TempDir() + "/a-model";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kFolder + "transformers5/llama.json", folder + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(LoadModelConfig(folder).name, "a-model");
  EXPECT_EQ(LoadModelConfig(folder + "/").name, "a-model");
  EXPECT_EQ(LoadModelConfig(folder + "/config.json").name, "a-model");
}

}  // namespace
}  // namespace trimtab

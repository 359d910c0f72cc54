#include "engine/families/hugging_face.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

const std::string kModels = "testdata/configs/models/";

TEST(HuggingFace, PublishedFilesEqualThePresets) {
  for (const auto& [file, preset] :
       {std::pair{"gpt2.json", "gpt2-124m"}, {"llama3_8b.json", "llama3-8b"}}) {
    ModelConfig model = LoadModelConfig(kModels + file);
    EXPECT_EQ(model.name, kModels + file);
    model.name = preset;
    EXPECT_EQ(model, LoadModelConfig(preset));
  }
}

TEST(HuggingFace, NameInTheFileIsKept) {
  nlohmann::json json = ReadJsonFile(kModels + "gpt2.json");
  json["_name_or_path"] = "openai-community/gpt2";
  EXPECT_EQ(ModelConfigFromHuggingFace(json, "c.json: $").name, "openai-community/gpt2");
}

TEST(HuggingFace, LlamaDefaults) {
  nlohmann::json json = ReadJsonFile(kModels + "llama3_8b.json");
  json.erase("num_key_value_heads");
  json.erase("rope_theta");
  json.erase("rms_norm_eps");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const ModelConfig model = ModelConfigFromHuggingFace(json, "c.json: $");
  EXPECT_EQ(model.num_kv_heads, 32);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.rope_theta, 1e6);
}

ModelConfig Read(const nlohmann::json& json) {
  return ModelConfigFromHuggingFace(json, "c.json: $");
}

// What a file says of a preset's model reads back as the preset.
TEST(HuggingFace, EveryPresetGoesThroughAFileOfItsType) {
  for (const std::string& name : ModelPresetNames()) {
    if (name == "grok-1" || name == "glm-130b") continue;  // published without a type
    const ModelConfig model = LoadModelConfig(name);
    const nlohmann::json config = ToHuggingFace(model);
    ModelConfig read = Read(nlohmann::json::parse(config.dump()));
    EXPECT_EQ(read.name, "");
    read.name = name;
    EXPECT_EQ(read, model) << name << " as " << config["model_type"];
  }
}

TEST(HuggingFace, TypesOfPresets) {
  for (const auto& [preset, type] : {std::pair{"gpt2-124m", "gpt2"}, {"opt-6.7b", "opt"},
                                     {"bloom-560m", "bloom"},        {"mpt-7b", "mpt"},
                                     {"gpt-j-6b", "gptj"},           {"gpt-neox-20b", "gpt_neox"},
                                     {"falcon-7b", "falcon"},        {"falcon-40b", "falcon"},
                                     {"nemotron-4-15b", "nemotron"}, {"llama3.1-8b", "llama"},
                                     {"mistral-7b-v0.1", "mistral"}, {"qwen2.5-7b", "qwen2"},
                                     {"qwen3-8b", "qwen3"},          {"gemma2-27b", "gemma2"},
                                     {"gemma3-1b", "gemma3_text"},   {"gemma3-27b", "gemma3_text"},
                                     {"olmo2-32b", "olmo2"},         {"olmo3-7b", "olmo3"},
                                     {"glm-4-9b-0414", "glm4"},      {"mixtral-8x7b", "mixtral"},
                                     {"qwen3-30b-a3b", "qwen3_moe"}}) {
    EXPECT_EQ(ToHuggingFace(LoadModelConfig(preset))["model_type"], type) << preset;
  }
}

// The keys of published files: those of google/gemma-3-1b-it and of allenai/Olmo-3-1025-7B.
TEST(HuggingFace, Gemma3AndOlmo3TurnLayersWithAWindowByThemselves) {
  nlohmann::json json = {{"model_type", "gemma3_text"},
                         {"attention_bias", false},
                         {"attn_logit_softcapping", nullptr},
                         {"cache_implementation", "hybrid"},
                         {"final_logit_softcapping", nullptr},
                         {"head_dim", 256},
                         {"hidden_activation", "gelu_pytorch_tanh"},
                         {"hidden_size", 1152},
                         {"intermediate_size", 6912},
                         {"max_position_embeddings", 32768},
                         {"num_attention_heads", 4},
                         {"num_hidden_layers", 26},
                         {"num_key_value_heads", 1},
                         {"query_pre_attn_scalar", 256},
                         {"rms_norm_eps", 1e-6},
                         {"rope_local_base_freq", 10000},
                         {"rope_scaling", nullptr},
                         {"rope_theta", 1000000},
                         {"sliding_window", 512},
                         {"sliding_window_pattern", 6},
                         {"vocab_size", 262144}};
  ModelConfig expected = LoadModelConfig("gemma3-1b");
  expected.name = "";
  EXPECT_EQ(Read(json), expected);
  json = {{"model_type", "olmo3"},
          {"attention_bias", false},
          {"hidden_act", "silu"},
          {"hidden_size", 4096},
          {"intermediate_size", 11008},
          {"max_position_embeddings", 65536},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 32},
          {"num_key_value_heads", 32},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"attention_factor", 1.2079441541679836},
            {"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"factor", 8.0},
            {"original_max_position_embeddings", 8192}}},
          {"rope_theta", 500000},
          {"sliding_window", 4096},
          {"tie_word_embeddings", false},
          {"vocab_size", 100278}};
  expected = LoadModelConfig("olmo3-7b");
  expected.name = "";
  expected.rope_scaling.attention_factor = 1.2079441541679836;
  EXPECT_EQ(Read(json), expected);
  EXPECT_EQ(expected.layer(3).attention().rotary->scaling.factor, 8);
  EXPECT_EQ(expected.layer(2).attention().rotary->scaling.kind, RopeScalingKind::kNone);
}

// The published file's keys.
TEST(HuggingFace, Opt350mHasItsNormsLaterAndANarrowEmbedding) {
  nlohmann::json json = {{"model_type", "opt"},           {"activation_function", "relu"},
                         {"do_layer_norm_before", false}, {"ffn_dim", 4096},
                         {"hidden_size", 1024},           {"max_position_embeddings", 2048},
                         {"num_attention_heads", 16},     {"num_hidden_layers", 24},
                         {"vocab_size", 50272},           {"word_embed_proj_dim", 512}};
  ModelConfig expected = LoadModelConfig("opt-350m");
  expected.name = "";
  EXPECT_EQ(Read(json), expected);
  // Norms before, and none at the end.
  json["do_layer_norm_before"] = true;
  json["_remove_final_layer_norm"] = true;
  expected.block = BlockKind::kSequential;
  EXPECT_EQ(Read(json), expected);
  EXPECT_EQ(Read(ToHuggingFace(expected)), expected);
}

// 64 where nothing is said, as in Transformers.
TEST(HuggingFace, GptJTurnsWhatItsConfigSays) {
  const auto turned = [](const nlohmann::json& rotary_dim, int64_t heads) {
    nlohmann::json json = ToHuggingFace(LoadModelConfig("gpt-j-6b"));
    json["n_head"] = heads;
    json["rotary_dim"] = rotary_dim;
    if (rotary_dim == "left out") json.erase("rotary_dim");
    return Read(json).rotary_size();
  };
  EXPECT_EQ(turned(32, 16), 32);
  EXPECT_EQ(turned("left out", 16), 64);
  EXPECT_EQ(turned("left out", 128), 32) << "a head is no larger";
  EXPECT_THROW(turned(nullptr, 16), InputError);
}

TEST(HuggingFace, NoTypeDescribesAnyMixtureOfFeatures) {
  ModelConfig model = LoadModelConfig("llama-tiny");
  model.embedding_norm = true;
  EXPECT_EQ(ErrorText<InputError>([&model] { ToHuggingFace(model); }),
            "model 'llama-tiny': no model type of Hugging Face that is known here describes it; in "
            "the nearest, llama, embedding_norm is nothing, not true");
}

// Where every layer has experts, nobody sees how wide an MLP would be.
TEST(HuggingFace, AWidthThatNoLayerHasMakesNoDifference) {
  ModelConfig model = LoadModelConfig("mixtral-8x7b");
  model.ffn_hidden_size = 77;
  EXPECT_EQ(ToHuggingFace(model)["intermediate_size"], model.moe.ffn_hidden_size);
  model.moe.first_k_dense = 1;
  EXPECT_THROW(ToHuggingFace(model), InputError);
}

// No config.json says how a model is trained, and none needs to.
TEST(HuggingFace, WhatOnlyTrainingAsksMakesNoDifference) {
  ModelConfig model = LoadModelConfig("mixtral-8x7b");
  model.init_std = 0.5;
  model.moe.z_loss_coeff = 1e-3;
  model.moe.capacity_factor = 1.5;
  model.moe.bias_update_rate = 1e-2;
  model.moe.drop_policy = DropPolicy::kPosition;
  EXPECT_EQ(ToHuggingFace(model)["model_type"], "mixtral");
}

// As published: https://huggingface.co/tiiuae/falcon-7b, under both its types, where one key/value
// head serves all, whatever the file lists.
TEST(HuggingFace, Falcon) {
  nlohmann::json json = {{"model_type", "falcon"},  {"hidden_size", 4544},
                         {"num_hidden_layers", 32}, {"num_attention_heads", 71},
                         {"num_kv_heads", 71},      {"vocab_size", 65024},
                         {"multi_query", true},     {"new_decoder_architecture", false},
                         {"parallel_attn", true},   {"bias", false},
                         {"alibi", false},          {"layer_norm_epsilon", 1e-5}};
  ModelConfig falcon = LoadModelConfig("falcon-7b");
  falcon.name = "";
  EXPECT_EQ(Read(json), falcon);
  EXPECT_EQ(Read({{"model_type", "RefinedWebModel"},
                  {"hidden_size", 4544},
                  {"n_layer", 32},
                  {"n_head", 71},
                  {"vocab_size", 65024},
                  {"multi_query", true},
                  {"parallel_attn", true}}),
            falcon);
  falcon = LoadModelConfig("falcon-40b");
  falcon.name = "";
  EXPECT_EQ(Read({{"model_type", "RefinedWeb"},
                  {"hidden_size", 8192},
                  {"n_layer", 60},
                  {"n_head", 128},
                  {"n_head_kv", 8},
                  {"vocab_size", 65024},
                  {"parallel_attn", true}}),
            falcon);
  json["parallel_attn"] = false;
  json["multi_query"] = false;
  EXPECT_EQ(Read(json).block, BlockKind::kSequential);
  EXPECT_EQ(Read(json).num_kv_heads, 71);
}

// Transformers 4 has theta and the scaling apart, 5 together; the kind was called "type" once.
TEST(HuggingFace, RotaryPositionsInEveryForm) {
  nlohmann::json json = ToHuggingFace(LoadModelConfig("llama3.1-8b"));
  const ModelConfig expected = Read(json);
  nlohmann::json together = json["rope_scaling"];
  together["rope_theta"] = json["rope_theta"];
  nlohmann::json newer = json;
  newer.erase("rope_theta");
  newer.erase("rope_scaling");
  newer["rope_parameters"] = together;
  EXPECT_EQ(Read(newer), expected);
  nlohmann::json older = json;
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Read(older).rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(Read(older).rope_scaling.factor, 4.0);
  // DeepSeek's two exponents.
  older["rope_scaling"] = {{"type", "yarn"},
                           {"factor", 40.0},
                           {"original_max_position_embeddings", 4096},
                           {"mscale", 1.0},
                           {"mscale_all_dim", 1.0}};
  EXPECT_EQ(Read(older).rope_scaling.attention_factor, 1.0);
}

TEST(HuggingFace, NullIsNoWindowAndNoCapButElsewhereTheDefault) {
  nlohmann::json json = ToHuggingFace(LoadModelConfig("mistral-7b-v0.1"));
  json.erase("sliding_window");
  EXPECT_EQ(Read(json).sliding_window, 4096);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(Read(json).sliding_window, 0);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Read(json).num_kv_heads, 32);
  json.erase("num_key_value_heads");
  EXPECT_EQ(Read(json).num_kv_heads, 8);
  json = ToHuggingFace(LoadModelConfig("gemma2-2b"));
  json["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(Read(json).attention_soft_cap, 0);
}

TEST(HuggingFace, HeadSizesThatNeedNotDivideTheHiddenSize) {
  nlohmann::json json = ToHuggingFace(LoadModelConfig("llama2-7b"));
  json["head_dim"] = 64;
  EXPECT_EQ(Read(json).head_size(), 64);
  EXPECT_EQ(Read(json).qkv_size(), 3 * 32 * 64);
  json = ToHuggingFace(LoadModelConfig("qwen3-4b"));
  json.erase("head_dim");
  EXPECT_EQ(Read(json).head_size(), 128);  // the default of its class, not 2560 / 32
}

struct Refused {
  const char* preset;
  const char* key;
  nlohmann::json value;
  const char* message;  // after "c.json: $."
};

TEST(HuggingFace, RefusesFeaturesTheEngineDoesNotHave) {
  const Refused cases[] = {
      {"gpt2-124m", "model_type", "mamba",
       "model_type: expected one of gpt2, gptj, gpt_neox, opt, bloom, mpt, falcon, RefinedWeb, "
       "RefinedWebModel, nemotron, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, olmo2, "
       "olmo3, glm, glm4, mixtral, qwen3_moe, qwen2_moe, deepseek_v2, deepseek_v3, gpt_oss, dbrx, "
       "got \"mamba\""},
      {"gpt2-124m", "n_embd", 0, "n_embd: expected an integer from 1 to 1048576, got 0"},
      {"gpt2-124m", "activation_function", "silu",
       "activation_function: expected one of gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, "
       "relu2, got \"silu\""},
      {"gpt2-124m", "scale_attn_weights", false,
       "scale_attn_weights: unscaled attention is not supported; expected true or no such key, "
       "got false"},
      {"gpt2-124m", "add_cross_attention", true,
       "add_cross_attention: cross attention is not supported; expected false or no such key, got "
       "true"},
      {"opt-125m", "layer_norm_elementwise_affine", false,
       "layer_norm_elementwise_affine: a norm without weights is not supported; expected true or "
       "no such key, got false"},
      {"opt-350m", "word_embed_proj_dim", 0,
       "word_embed_proj_dim: expected an integer from 1 to 1048576, got 0"},
      {"bloom-560m", "apply_residual_connection_post_layernorm", true,
       "apply_residual_connection_post_layernorm: a residual stream of normed values is not "
       "supported; expected false or no such key, got true"},
      {"falcon-7b", "alibi", true,
       "alibi: ALiBi, which Falcon scales in its own way, is not supported; expected false or no "
       "such key, got true"},
      {"mpt-7b", "n_heads", 24,
       "n_heads: 24 heads, and MPT orders ALiBi's slopes in its own way unless that is a power of "
       "2"},
      {"llama3.1-8b",
       "rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8.0}},
       "rope_scaling.low_freq_factor: required, but missing"},
      {"llama3.1-8b",
       "rope_scaling",
       {{"rope_type", "dynamic"}, {"factor", 2.0}},
       "rope_scaling.rope_type: expected one of default, linear, llama3, yarn, got \"dynamic\""},
      {"llama3.1-8b",
       "rope_parameters",
       {{"rope_type", "default"}, {"full_attention", 1}},
       "rope_parameters.full_attention: unknown key, which may change what the model computes; "
       "expected no such key, or null"},
      {"llama3.1-8b", "hidden_act", "gelu_quick",
       "hidden_act: expected one of gelu, gelu_new, gelu_pytorch_tanh, silu, swish, got "
       "\"gelu_quick\""},
      {"llama3.2-1b", "layer_types", nlohmann::json::array({"full_attention"}),
       "layer_types: expected an array of 16, one for each layer, got an array of 1"},
  };
  for (const Refused& refused : cases) {
    nlohmann::json json = ToHuggingFace(LoadModelConfig(refused.preset));
    json[refused.key] = refused.value;
    EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
              std::string("c.json: $.") + refused.message);
  }
}

TEST(HuggingFace, LayerTypesMustBeThoseOfTheFamily) {
  nlohmann::json json = ToHuggingFace(LoadModelConfig("gemma2-2b"));
  nlohmann::json types = nlohmann::json::array();
  for (int i = 0; i < 26; ++i) types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  json["layer_types"] = types;
  EXPECT_EQ(Read(json).window(0), 4096);
  json["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
            "c.json: $.layer_types[3]: expected full_attention, got \"sliding_attention\"");
}

TEST(HuggingFace, MissingModelTypeOrSizeIsNamed) {
  nlohmann::json json = ReadJsonFile(kModels + "gpt2.json");
  json.erase("n_layer");
  EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
            "c.json: $.num_hidden_layers: required, but missing, and so are its other names: "
            "n_layer, n_layers");
  json.erase("model_type");
  EXPECT_TRUE(IsHuggingFaceConfig(json));
  EXPECT_EQ(ErrorText<InputError>([&json] { Read(json); }),
            "c.json: $.model_type: required, but missing");
}

}  // namespace
}  // namespace trimtab

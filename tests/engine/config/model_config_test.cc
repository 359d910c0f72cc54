#include "engine/config/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

// Elements of the published weights: stored totals of the files where these are public (GPT-2,
// BLOOM, GPT-J, NeoX and Pythia from 2.8B, Falcon, Llama, Qwen2.5, Qwen2-57B-A14B, Qwen3, Gemma 2,
// GLM-4-9B, TinyLlama), otherwise worked out from the shapes in config.json by Transformers'
// modeling_*.py.
// GPT-3 and MT-NLG: from the papers' shapes with the vocabularies that were trained.
struct Published {
  const char* name;
  int64_t parameters;
};
constexpr Published kPublished[] = {
    {"gpt2-124m", 124'439'808},
    {"gpt2-355m", 354'823'168},
    {"gpt2-774m", 774'030'080},
    {"gpt2-1.5b", 1'557'611'200},
    {"gpt3-1.3b", 1'315'723'264},
    {"gpt3-2.7b", 2'651'553'280},
    {"gpt3-6.7b", 6'658'404'352},
    {"gpt3-13b", 12'853'386'240},
    {"gpt3-175b", 174'604'259'328},
    {"mt-nlg-530b", 529'600'819'200},
    {"opt-125m", 125'239'296},
    {"opt-350m", 331'196'416},
    {"opt-1.3b", 1'315'758'080},
    {"opt-2.7b", 2'651'596'800},
    {"opt-6.7b", 6'658'473'984},
    {"opt-13b", 12'853'473'280},
    {"opt-30b", 29'974'540'288},
    {"opt-66b", 65'719'701'504},
    {"opt-175b", 174'604'468'224},
    {"bloom-560m", 559'214'592},
    {"bloom-1b1", 1'065'314'304},
    {"bloom-1b7", 1'722'408'960},
    {"bloom-3b", 3'002'557'440},
    {"bloom-7b1", 7'069'016'064},
    {"bloom-176b", 176'247'271'424},
    {"mpt-7b", 6'649'286'656},
    {"mpt-30b", 29'957'200'896},
    {"gpt-j-6b", 6'050'882'784},
    {"pythia-14m", 14'067'712},
    {"pythia-31m", 30'494'720},
    {"pythia-70m", 70'426'624},
    {"pythia-160m", 162'322'944},
    {"pythia-410m", 405'334'016},
    {"pythia-1b", 1'011'781'632},
    {"pythia-1.4b", 1'414'647'808},
    {"pythia-2.8b", 2'775'208'960},
    {"pythia-6.9b", 6'857'302'016},
    {"pythia-12b", 11'846'072'320},
    {"gpt-neox-20b", 20'554'567'680},
    {"falcon-7b", 6'921'720'704},
    {"falcon-40b", 41'303'293'952},
    {"falcon-180b", 178'557'088'768},
    {"minitron-4b", 4'190'509'056},
    {"nemotron-3-8b", 8'540'135'424},
    {"nemotron-3-22b", 21'266'116'608},
    {"nemotron-4-15b", 15'628'775'424},
    {"nemotron-4-340b", 341'029'195'776},
    {"tinyllama-1.1b", 1'100'048'384},
    {"llama2-7b", 6'738'415'616},
    {"llama2-13b", 13'015'864'320},
    {"llama2-70b", 68'976'648'192},
    {"llama3-8b", 8'030'261'248},
    {"llama3-70b", 70'553'706'496},
    {"llama3-405b", 405'853'388'800},
    {"llama3.1-8b", 8'030'261'248},
    {"llama3.1-70b", 70'553'706'496},
    {"llama3.1-405b", 405'853'388'800},
    {"llama3.3-70b", 70'553'706'496},
    {"llama3.2-1b", 1'235'814'400},
    {"llama3.2-3b", 3'212'749'824},
    {"mistral-7b-v0.1", 7'241'732'096},
    {"mistral-7b-v0.3", 7'248'023'552},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304},
    {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen2.5-72b", 72'706'203'648},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"gemma2-2b", 2'614'341'888},
    {"gemma2-9b", 9'241'705'984},
    {"gemma2-27b", 27'227'128'320},
    {"glm-4-9b-0414", 9'400'279'040},
    {"glm-4-32b-0414", 32'566'081'536},
    {"glm-130b", 128'697'794'560},
    {"mixtral-8x7b", 46'702'792'704},
    {"mixtral-8x22b", 140'620'634'112},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"grok-1", 315'684'820'992},
    {"qwen1.5-moe-a2.7b", 14'315'784'192},
    {"qwen2-57b-a14b", 57'408'658'944},
    {"deepseek-v2-lite", 15'706'484'224},
    {"deepseek-v2", 235'741'434'880},
    {"deepseek-v3", 671'026'419'200},
    {"deepseek-r1", 671'026'419'200},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"dbrx-132b", 131'596'523'520},
};

// The small ones, made for this project, and what they are called after.
constexpr std::pair<const char*, double> kOwn[] = {{"gpt2-tiny", 0.125e6},
                                                   {"gpt2-10m", 10e6},
                                                   {"gpt2-25m", 25e6},
                                                   {"llama-tiny", 0.125e6},
                                                   {"llama-15m", 15e6}};

// What the papers themselves say, rounded, of models whose weights nobody else can count: Brown et
// al. 2020 (GPT-3) and Smith et al. 2022 (MT-NLG).
constexpr std::pair<const char*, double> kRounded[] = {
    {"gpt3-1.3b", 1.3e9}, {"gpt3-2.7b", 2.7e9}, {"gpt3-6.7b", 6.7e9},
    {"gpt3-13b", 13e9},   {"gpt3-175b", 175e9}, {"mt-nlg-530b", 530e9}};

TEST(ModelPresets, ParameterCountsEqualThePublishedOnes) {
  std::set<std::string> checked;
  for (const auto& [name, parameters] : kPublished) {
    EXPECT_EQ(LoadModelConfig(name).parameter_count(), parameters) << name;
    checked.insert(name);
  }
  for (const auto& [name, count] : kOwn) {
    EXPECT_NEAR(static_cast<double>(LoadModelConfig(name).parameter_count()) / count, 1, 0.1)
        << name;
    checked.insert(name);
  }
  for (const auto& [name, count] : kRounded) {
    EXPECT_NEAR(static_cast<double>(LoadModelConfig(name).parameter_count()) / count, 1, 0.02)
        << name;
  }
  for (const std::string& name : ModelPresetNames()) {
    EXPECT_TRUE(checked.contains(name)) << name << " has no count to be held to";
  }
}

// Of the same models: what one token is multiplied by or looks up.
TEST(ModelPresets, ActiveParametersOfModelsWithExperts) {
  for (const auto& [name, active] : {Published{"mixtral-8x7b", 12'879'925'248},
                                     {"mixtral-8x22b", 39'152'031'744},
                                     {"qwen3-30b-a3b", 3'353'032'704},
                                     {"qwen3-235b-a22b", 22'190'763'520},
                                     {"grok-1", 83'756'587'008},
                                     {"deepseek-v2-lite", 2'661'150'208},
                                     {"deepseek-v2", 21'375'800'320},
                                     {"deepseek-v3", 37'552'297'472},
                                     {"gpt-oss-20b", 4'187'440'704},
                                     {"gpt-oss-120b", 5'711'982'912},
                                     {"dbrx-132b", 36'469'708'800}}) {
    EXPECT_EQ(LoadModelConfig(name).active_parameter_count(), active) << name;
  }
}

// Of the published file: layer 61, without the copies of the token table and the output.
TEST(ModelPresets, PredictorsOfMoreTokensAreCountedApart) {
  const ModelConfig model = LoadModelConfig("deepseek-v3");
  EXPECT_EQ(model.mtp_modules, 1);
  EXPECT_EQ(model.mtp_parameter_count(), 11'610'068'224);
}

TEST(ModelPresets, NamesAreUniqueAndShapesAreSane) {
  std::set<std::string> names;
  for (const std::string& name : ModelPresetNames()) {
    EXPECT_TRUE(names.insert(name).second) << name;
    const ModelConfig model = LoadModelConfig(name);
    EXPECT_EQ(model.name, name);
    EXPECT_TRUE(model.head_dim > 0 || model.hidden_size % model.num_heads == 0) << name;
    EXPECT_EQ(model.num_heads % model.num_kv_heads, 0) << name;
    // What is meant for the CPU splits four ways, except Llama's two key/value heads in tests.
    if (model.vocab_size == 257) {
      EXPECT_EQ(model.num_heads % 4, 0) << name;
    }
  }
}

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

TEST(ModelConfig, UnknownPresetsSuggestOne) {
  EXPECT_EQ(ErrorText<UsageError>([] { LoadModelConfig("lama2-7b"); }),
            "model 'lama2-7b' is neither a preset nor a file; did you mean 'llama2-7b'?");
  const std::string listed = ErrorText<UsageError>([] { LoadModelConfig("?"); });
  for (const std::string& name : ModelPresetNames()) {
    EXPECT_NE(listed.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(ErrorText<InputError>([] { LoadModelConfig("no/such.json"); }),
            "no/such.json: cannot be read: No such file or directory");
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

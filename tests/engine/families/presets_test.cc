#include <gtest/gtest.h>

#include <set>

#include "engine/families/load_config.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

// Elements of the published weights: stored totals of the files where these are public (GPT-2,
// BLOOM, GPT-J, NeoX and Pythia from 2.8B, Falcon, Llama, Qwen2.5, Qwen2-57B-A14B, Qwen3, Gemma 2,
// Gemma 3's language models, OLMo, GLM-4-9B, TinyLlama), otherwise worked out from the shapes in
// config.json by Transformers' modeling_*.py. GPT-3 and MT-NLG: from the papers' shapes with the
// vocabularies that were trained.
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
    {"gemma3-270m", 268'098'176},
    {"gemma3-1b", 999'885'952},
    {"gemma3-4b", 3'880'263'168},
    {"gemma3-12b", 11'766'034'176},
    {"gemma3-27b", 27'009'346'304},
    {"olmo2-1b", 1'484'916'736},
    {"olmo2-7b", 7'298'617'344},
    {"olmo2-13b", 13'716'198'400},
    {"olmo2-32b", 32'234'279'936},
    {"olmo3-7b", 7'298'011'136},
    {"olmo3-32b", 32'233'522'176},
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

// Lists show one title after the other, so that each stands once.
TEST(ModelPresets, GroupsOfOneTitleFollowEachOther) {
  std::set<std::string> titles;
  std::string last;
  for (const PresetGroup& group : PresetGroups()) {
    EXPECT_FALSE(group.models.empty()) << group.title;
    if (group.title != last) {
      EXPECT_TRUE(titles.insert(group.title).second) << group.title;
    }
    last = group.title;
  }
}

}  // namespace
}  // namespace trimtab

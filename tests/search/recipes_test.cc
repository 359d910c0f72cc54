// Layouts that frameworks publish: each is legal for its model on its GPUs, and they are found for
// the problems that they are of.
#include "search/recipes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

Problem ProblemOf(const std::string& model, const std::string& cluster) {
  Problem problem;
  problem.model = LoadModelConfig(model);
  problem.cluster = LoadCluster(cluster);
  problem.precisions = {Precision::kBf16, Precision::kFp8};
  problem.global_batch = 1680;
  problem.sequence_length = 2048;
  return problem;
}

std::vector<RecipePlace> PlacesOf(const Problem& problem) {
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  return PlaceRecipes(problem, Objective::kThroughput, *predictor);
}

// All tables, on as many GPUs as they were published for or a multiple of it.
TEST(Recipes, RunOnTheGpusTheyArePublishedFor) {
  const std::pair<const char*, const char*> problems[] = {
      {"gpt3-175b", "8x8xa100"},        {"mt-nlg-530b", "35x8xa100"},
      {"gpt3-175b", "64x8xh100"},       {"llama2-13b", "2x8xh100"},
      {"llama3.1-70b", "8x8xh100"},     {"llama3-8b", "8xb200"},
      {"llama3.1-405b", "16x8xb200"},   {"mixtral-8x7b", "8x8xb200"},
      {"nemotron-4-15b", "8x8xb200"},   {"nemotron-4-340b", "16x8xh100"},
      {"qwen3-235b-a22b", "32x8xb200"}, {"qwen3-30b-a3b", "2x8xh100"},
  };
  for (const auto& [model, cluster] : problems) {
    SCOPED_TRACE(fmt::format("{} on {}", model, cluster));
    Problem problem = ProblemOf(model, cluster);
    problem.global_batch = 2240;  // 280 micro batches in each of 8 replicas
    if (problem.cluster.max_ranks != 280) problem.global_batch = 2048;
    const std::vector<RecipePlace> places = PlacesOf(problem);
    EXPECT_FALSE(places.empty());
    for (const RecipePlace& each : places) {
      EXPECT_TRUE(each.prediction.has_value()) << each.layout << ": " << each.refused;
    }
  }
}

TEST(Recipes, AreOfTheModelTheGpuAndThePrecisionsOfTheProblem) {
  EXPECT_TRUE(PlacesOf(ProblemOf("gpt3-175b", "8x8xl40s")).empty()) << "another GPU";
  EXPECT_TRUE(PlacesOf(ProblemOf("gpt3-6.7b", "64x8xh100")).empty()) << "another model";
  Problem bf16 = ProblemOf("gpt3-175b", "64x8xh100");
  bf16.precisions = {Precision::kBf16};
  EXPECT_TRUE(PlacesOf(bf16).empty()) << "it is one in fp8";
  EXPECT_TRUE(PlacesOf(TinyProblem()).empty());
}

TEST(Recipes, TakeTheBestOfTheBatchesAndStatesOfTheProblem) {
  Problem problem = ProblemOf("gpt3-175b", "64x8xh100");
  problem.global_batch = 512;
  const RecipePlace small = PlacesOf(problem).at(0);
  problem.global_batches = {512, 2048};
  const RecipePlace best = PlacesOf(problem).at(0);
  EXPECT_EQ(small.global_batch, 512);
  EXPECT_EQ(best.global_batch, 2048);
  EXPECT_GT(best.prediction->tokens_per_s, small.prediction->tokens_per_s);

  problem.global_batches.clear();
  problem.optimizer_states = {"reduced"};
  const RecipePlace reduced = PlacesOf(problem).at(0);
  EXPECT_LT(reduced.prediction->peak_mem_bytes, small.prediction->peak_mem_bytes);
  EXPECT_NE(reduced.layout.find("master=remainder"), std::string::npos) << reduced.layout;
}

TEST(Recipes, SayWhyTheyDoNotRun) {
  const std::vector<RecipePlace> few = PlacesOf(ProblemOf("gpt3-175b", "8xh100"));
  ASSERT_EQ(few.size(), 1u);
  EXPECT_FALSE(few[0].prediction.has_value());
  EXPECT_NE(few[0].refused, "");
  Problem tight = ProblemOf("gpt3-175b", "8x8xh100");
  tight.global_batch = 2048;
  tight.memory_per_rank_bytes = int64_t{1} << 30;
  const std::vector<RecipePlace> places = PlacesOf(tight);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_NE(places[0].refused.find("1.00 GiB allowed"), std::string::npos) << places[0].refused;
}

TEST(Recipes, ReadBackAsTheyWereWritten) {
  const std::vector<RecipePlace> places = PlacesOf(ProblemOf("gpt3-175b", "64x8xh100"));
  ASSERT_FALSE(places.empty());
  EXPECT_EQ(ToJson(RecipePlacesFromJson(ToJson(places), "here")), ToJson(places));
  EXPECT_THROW(RecipePlacesFromJson({{{"source", 1}}}, "here"), StorageError);
}

}  // namespace
}  // namespace trimtab

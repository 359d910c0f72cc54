#include "search/search_result.h"

#include <gtest/gtest.h>

#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

TEST(SearchResult, AnOpenRaceStaysOneWithoutTrials) {
  const std::string path = ScratchPath("open.db");
  FakePredictor predictor;
  FakeRunner runner;
  SearchEvents events;
  TrainingSearch options = TinySearch(path);
  options.most_visits = 2;
  EXPECT_TRUE(RunSearch(options, predictor, runner, events).partial);
  options.study.resume = true;
  options.race.prove_count = 0;
  const SearchResult result = RunSearch(options, predictor, runner, events);
  EXPECT_TRUE(result.partial);
  EXPECT_NE(result.partial_reason, "");
  EXPECT_TRUE(result.recommendation.measured);
}

// Corrections by what was measured would scale one side of each comparison.
TEST(SearchResult, ExplainsByUncorrectedPredictions) {
  FakePredictor predictor;
  FakeRunner runner;
  SearchEvents events;
  runner.slowness = 10;
  const std::string path = ScratchPath("explained.db");
  TrainingSearch options = TinySearch(path);
  options.problem.precisions = {Precision::kFp32, Precision::kBf16};
  const SearchResult result = RunSearch(options, predictor, runner, events);
  ASSERT_TRUE(result.recommendation.measured);
  ASSERT_FALSE(result.explanations.empty());
  const std::vector<CandidateRecord> predicted = Study::OpenExisting(path)->Candidates();
  const auto step_s = [&](size_t index) { return predicted[index].closed_form->step_time_s; };
  const size_t best = result.recommended().candidate;
  for (const Explanation& each : result.explanations) {
    EXPECT_NEAR(each.extra_cost, step_s(each.other) / step_s(best) - 1, 1e-9) << each.dimension;
  }
  ASSERT_EQ(result.numerics.size(), 2u);
  for (const NumericsRow& each : result.numerics) {
    EXPECT_LT(each.extra_cost, 1) << "not what the machine is slower by";
    EXPECT_GT(each.extra_cost, -0.5);
  }
}

}  // namespace
}  // namespace trimtab

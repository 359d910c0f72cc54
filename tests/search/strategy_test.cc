#include "search/strategy.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

/// A candidate with a closed form of these figures.
CandidateRecord Predicted(double step_time_s, int64_t peak_mem_bytes, int64_t ranks = 1) {
  CandidateRecord candidate;
  candidate.run.device = "cuda";
  candidate.run.layout.dp = ranks;
  candidate.closed_form.emplace();
  candidate.closed_form->step_time_s = step_time_s;
  candidate.closed_form->tokens_per_s = 100 / step_time_s;
  candidate.closed_form->peak_mem_bytes = peak_mem_bytes;
  return candidate;
}

TEST(Strategy, ObjectivesOrderDifferently) {
  const std::vector<CandidateRecord> candidates = {Predicted(1, 300, 8), Predicted(2, 200, 2),
                                                   Predicted(3, 100, 2)};
  EXPECT_EQ(RankByPrediction(Objective::kThroughput, candidates), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(RankByPrediction(Objective::kMemory, candidates), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(RankByPrediction(Objective::kCost, candidates), (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(RankByPrediction(Objective::kEnergy, candidates), (std::vector<size_t>{1, 2, 0}));
}

TEST(Strategy, EqualScoresGoToTheShorterStep) {
  const std::vector<CandidateRecord> candidates = {Predicted(2, 100), Predicted(1, 100),
                                                   Predicted(2, 100)};
  EXPECT_EQ(RankByPrediction(Objective::kMemory, candidates), (std::vector<size_t>{1, 0, 2}));
}

TEST(Strategy, PrunedAndUnpredictedCandidatesAreNotRanked) {
  std::vector<CandidateRecord> candidates = {Predicted(1, 100), Predicted(2, 100), {}};
  candidates[0].pruned_by = "memory";
  EXPECT_EQ(RankByPrediction(Objective::kThroughput, candidates), (std::vector<size_t>{1}));
}

TEST(Strategy, DryRunsGoToTheBestByClosedForm) {
  std::vector<CandidateRecord> candidates = {Predicted(3, 1), Predicted(1, 1), Predicted(2, 1)};
  EXPECT_EQ(ChooseDryRuns(Objective::kThroughput, candidates, 2), (std::vector<size_t>{1, 2}));
  candidates[1].dry_run = candidates[1].closed_form;
  candidates[1].pruned_by = "memory";
  EXPECT_EQ(ChooseDryRuns(Objective::kThroughput, candidates, 2), (std::vector<size_t>{2}))
      << "one that the dry run pruned still counts";
  EXPECT_EQ(ChooseDryRuns(Objective::kThroughput, candidates, 0), std::vector<size_t>{});
  EXPECT_EQ(ChooseDryRuns(Objective::kThroughput, candidates, 99), (std::vector<size_t>{2, 0}));
}

TEST(Strategy, NamesComeBack) {
  for (const Objective objective : kObjectives) {
    EXPECT_EQ(ParseObjective(Name(objective)), objective);
  }
  try {
    ParseObjective("memroy");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace trimtab

#include "search/race/strategy.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

/// A candidate with a closed form of these figures.
CandidateRecord Predicted(double step_time_s, int64_t peak_mem_bytes, int64_t ranks = 1) {
  Prediction prediction;
  CandidateRecord candidate;
  candidate.run.device = DeviceKind::kCuda;
  candidate.run.layout.dp = ranks;
  prediction.step_time_s = step_time_s;
  prediction.tokens_per_s = 100 / step_time_s;
  prediction.peak_mem_bytes = peak_mem_bytes;
  candidate.closed_form = std::move(prediction);
  return candidate;
}

TEST(Strategy, ObjectivesOrderDifferently) {
  const std::vector<CandidateRecord> candidates = {Predicted(1, 300, 8), Predicted(2, 200, 2),
                                                   Predicted(3, 100, 2)};
  EXPECT_EQ(RankByPrediction(Objective::kThroughput, candidates), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(RankByPrediction(Objective::kMemory, candidates), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(RankByPrediction(Objective::kCost, candidates), (std::vector<size_t>{1, 2, 0}));
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

/// Of these candidates, those that were dry-run, as ChooseMoreDryRuns asks, and the rounds it took.
std::pair<std::set<size_t>, int> DryRunAll(std::vector<CandidateRecord>& candidates,
                                           const std::vector<double>& dry_step_s) {
  std::set<size_t> done;
  int rounds = 0;
  while (true) {
    const auto chosen = ChooseMoreDryRuns(Objective::kThroughput, candidates);
    if (chosen.empty()) return {done, rounds};
    ++rounds;
    for (const size_t i : chosen) {
      EXPECT_TRUE(done.insert(i).second) << i << " again";
      candidates[i].dry_run = Predicted(dry_step_s[i], 1).closed_form;
    }
  }
}

// Dry runs are slower than closed forms here, so those without one would lead.
TEST(Strategy, NothingLeadsWithoutADryRun) {
  std::vector<CandidateRecord> candidates;
  std::vector<double> dry_step_s;
  for (int i = 0; i < 30; ++i) {
    candidates.push_back(Predicted(1 + 0.1 * i, 1));
    dry_step_s.push_back(2 + 0.1 * (i % 7));
  }
  const auto [done, rounds] = DryRunAll(candidates, dry_step_s);
  const size_t first = RankByPrediction(Objective::kThroughput, candidates).front();
  EXPECT_TRUE(candidates[first].dry_run.has_value());
  EXPECT_EQ(first, 0u);
  EXPECT_GE(done.size(), 10u) << "all that would be better by their closed form";
  EXPECT_LT(done.size(), 14u) << "and few others";
  EXPECT_LE(rounds, 4) << "several at once";
}

TEST(Strategy, DryRunsGoToTheLeadersOfEachNumberOfGpusAndNumerics) {
  std::vector<CandidateRecord> candidates = {Predicted(1, 1, 8), Predicted(4, 1, 2),
                                             Predicted(2, 1, 8)};
  candidates[2].run.layout.numerics.precision = Precision::kBf16;
  candidates[0].dry_run = candidates[0].closed_form;
  EXPECT_EQ(ChooseMoreDryRuns(Objective::kThroughput, candidates), (std::vector<size_t>{1, 2}));
  candidates[1].dry_run = candidates[1].closed_form;
  candidates[2].dry_run = candidates[2].closed_form;
  EXPECT_TRUE(ChooseMoreDryRuns(Objective::kThroughput, candidates).empty());
  // Ranks of a cpu share one machine, and none is chosen for their number.
  candidates[1].dry_run.reset();
  for (CandidateRecord& each : candidates) each.run.device = DeviceKind::kCpu;
  EXPECT_TRUE(ChooseMoreDryRuns(Objective::kThroughput, candidates).empty());
}

}  // namespace
}  // namespace trimtab

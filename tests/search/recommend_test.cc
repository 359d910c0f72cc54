#include "search/recommend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

CandidateRecord Candidate(const std::string& key, double predicted_s) {
  CandidateRecord candidate;
  candidate.key = key;
  candidate.dry_run.emplace();
  candidate.dry_run->step_time_s = predicted_s;
  candidate.dry_run->tokens_per_s = 100 / predicted_s;
  candidate.dry_run->peak_mem_bytes = 1000;
  candidate.dry_run->breakdown_s = {{"compute", 0.6 * predicted_s},
                                    {"exposed_dp", 0.4 * predicted_s}};
  return candidate;
}

void Measured(CandidateRecord& candidate, double seconds) {
  candidate.measured.emplace();
  candidate.measured->step_time_s = seconds;
  candidate.measured->tokens_per_s = 100 / seconds;
  candidate.measured->peak_mem_bytes = 800;
}

std::vector<RankingRow> Rank(const std::vector<CandidateRecord>& candidates) {
  return RankAll({}, JudgeRace({}, candidates, {}), candidates);
}

TEST(Recommend, AScatterThatIsUnknownGivesNoInterval) {
  std::vector<CandidateRecord> candidates = {Candidate("a", 1.0), Candidate("b", 2.0)};
  Measured(candidates[0], 1.1);
  Measured(candidates[1], 2.2);
  candidates[0].measured_half_width = 0.1;
  candidates[1].measured_half_width = 22;
  const std::vector<RankingRow> ranking = Rank(candidates);
  EXPECT_NEAR(*ranking[0].figure.high, 100 / 1.1 * std::exp(0.1), 1e-9);
  EXPECT_NEAR(*ranking[0].figure.low, 100 / 1.1 / std::exp(0.1), 1e-9);
  EXPECT_FALSE(ranking[1].figure.low.has_value());
  EXPECT_FALSE(ranking[1].figure.high.has_value());
}

TEST(Recommend, TheMeasuredBestWinsOverTheBetterPredicted) {
  std::vector<CandidateRecord> candidates = {Candidate("a", 1.0), Candidate("b", 2.0),
                                             Candidate("c", 0.5), Candidate("d", 0.1)};
  Measured(candidates[0], 2.2);
  Measured(candidates[1], 2.0);
  candidates[3].failures = 1;
  candidates[3].last_state = TrialState::kOutOfMemory;
  const std::vector<RankingRow> ranking = Rank(candidates);
  ASSERT_EQ(ranking.size(), 4u);
  EXPECT_EQ(candidates[ranking[0].candidate].key, "b");
  EXPECT_EQ(candidates[ranking[1].candidate].key, "a");
  EXPECT_EQ(candidates[ranking[2].candidate].key, "c");
  EXPECT_EQ(ranking[2].state, RowState::kPredicted);
  EXPECT_EQ(candidates[ranking[3].candidate].key, "d");
  EXPECT_EQ(ranking[3].StateName(), "out_of_memory");
  EXPECT_DOUBLE_EQ(*ranking[1].step_time_error, (1.0 - 2.2) / 2.2);
  EXPECT_DOUBLE_EQ(*ranking[1].peak_mem_error, 0.25);
  EXPECT_FALSE(ranking[2].step_time_error.has_value());

  const auto choice = Recommend(Objective::kThroughput, candidates, ranking);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->row, 0u);
  EXPECT_TRUE(choice->measured);
  EXPECT_EQ(choice->binds.what, "exposed_dp");
  EXPECT_DOUBLE_EQ(choice->binds.share, 0.4);
  EXPECT_EQ(
      choice->binds.text,
      "compute-bound: 60 % of the step computes, 40.0 % is data-parallel messages that compute "
      "does not hide");
  EXPECT_EQ(choice->alternative, 1u);
  EXPECT_NEAR(choice->alternative_cost.by, 0.1, 1e-12);

  const Accuracy accuracy = SummarizeAccuracy(ranking);
  EXPECT_EQ(accuracy.proved, 2);
  EXPECT_DOUBLE_EQ(accuracy.max_step_time_error, 1.2 / 2.2);
  EXPECT_DOUBLE_EQ(accuracy.median_step_time_error, 1.2 / 2.2 / 2);
  EXPECT_DOUBLE_EQ(accuracy.max_peak_mem_error.value(), 0.25);
}

TEST(Recommend, AMeasuredWinnerIsNotComparedWithPredictions) {
  std::vector<CandidateRecord> candidates = {Candidate("a", 1.0), Candidate("b", 2.0)};
  Measured(candidates[0], 1.0);
  const auto choice = Recommend(Objective::kThroughput, candidates, Rank(candidates));
  EXPECT_EQ(choice->alternative, std::nullopt);
}

TEST(Recommend, AnUnprovedOneExpectedToBeatTheWinnerIsNamed) {
  std::vector<CandidateRecord> candidates = {Candidate("a", 1.0), Candidate("b", 1.5)};
  Measured(candidates[0], 2.0);
  const auto recommend = [&] {
    return Recommend(Objective::kThroughput, candidates, Rank(candidates));
  };
  EXPECT_EQ(recommend()->contender, std::nullopt) << "a prediction that nothing backs";
  candidates[1].corrected = *candidates[1].prediction();
  EXPECT_EQ(recommend()->contender, 1u);
  EXPECT_DOUBLE_EQ(recommend()->contender_gain, 0.25);
  candidates[1].corrected->tokens_per_s = 100 / 2.5;
  EXPECT_EQ(recommend()->contender, std::nullopt);
}

TEST(Recommend, ThePlainLayoutIsWhatOneWouldStartWith) {
  std::vector<CandidateRecord> candidates = {Candidate("best", 1.0), Candidate("plain", 1.5)};
  candidates[0].run.layout.tp = 2;
  candidates[0].run.layout.micro_batch = 4;
  const auto choice = Recommend(Objective::kThroughput, candidates, Rank(candidates));
  ASSERT_EQ(choice->plain, 1u);
  EXPECT_NEAR(choice->plain_gain, 0.5, 1e-12);
  candidates[1].run.layout.micro_batch = 2;
  EXPECT_EQ(Recommend(Objective::kThroughput, candidates, Rank(candidates))->plain, std::nullopt);
}

TEST(Recommend, WithNothingMeasuredThePredictionDecides) {
  const std::vector<CandidateRecord> candidates = {Candidate("a", 2.0), Candidate("b", 1.0)};
  const std::vector<RankingRow> ranking = Rank(candidates);
  const auto choice = Recommend(Objective::kThroughput, candidates, ranking);
  ASSERT_TRUE(choice.has_value());
  EXPECT_FALSE(choice->measured);
  EXPECT_EQ(candidates[ranking[choice->row].candidate].key, "b");
  EXPECT_EQ(SummarizeAccuracy(ranking).proved, 0);
}

TEST(Recommend, NothingThatFailedIsRecommended) {
  std::vector<CandidateRecord> candidates = {Candidate("a", 2.0)};
  candidates[0].failures = 1;
  candidates[0].last_state = TrialState::kFailed;
  EXPECT_FALSE(Recommend(Objective::kThroughput, candidates, Rank(candidates)).has_value());
  EXPECT_FALSE(Recommend(Objective::kThroughput, {}, {}).has_value());
}

}  // namespace
}  // namespace trimtab

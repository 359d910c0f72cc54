#include "search/race/correct.h"

#include <gtest/gtest.h>

#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

CandidateRecord Candidate(int64_t ranks, int64_t threads, double predicted_s) {
  CandidateRecord candidate;
  candidate.run.layout.dp = ranks;
  candidate.run.threads_per_rank = threads;
  Prediction& prediction = candidate.dry_run.emplace();
  prediction.step_time_s = predicted_s;
  prediction.tokens_per_s = 100 / predicted_s;
  prediction.trust = Trust::kModelled;
  prediction.breakdown_s = {{"compute", predicted_s}};
  candidate.closed_form = prediction;
  return candidate;
}

TEST(Correct, ScalesTheUnprovedOfTheSameMode) {
  std::vector<CandidateRecord> candidates = {Candidate(1, 2, 1.0), Candidate(1, 2, 2.0),
                                             Candidate(2, 1, 4.0)};
  candidates[0].measured.emplace().step_time_s = 1.5;
  const std::vector<CandidateRecord> before = candidates;
  CorrectPredictions({}, candidates);

  EXPECT_EQ(candidates[0].dry_run, before[0].dry_run) << "what was measured keeps its prediction";
  EXPECT_FALSE(candidates[0].corrected);
  EXPECT_TRUE(candidates[1].corrected);
  const Prediction* const prediction = candidates[1].prediction();
  EXPECT_DOUBLE_EQ(prediction->step_time_s, 3.0);
  EXPECT_DOUBLE_EQ(prediction->tokens_per_s, 100 / 3.0);
  EXPECT_DOUBLE_EQ(prediction->breakdown_s.at("compute"), 3.0);
  EXPECT_LT(prediction->step_time_low_s, 3.0);
  EXPECT_GT(prediction->step_time_high_s, 3.0);
  EXPECT_EQ(prediction->trust, Trust::kCalibrated);
  EXPECT_EQ(candidates[1].dry_run, before[1].dry_run) << "what is stored stays";
  EXPECT_EQ(candidates[1].closed_form, before[1].closed_form);
  EXPECT_EQ(candidates[2].dry_run, before[2].dry_run) << "another mode says nothing";
  EXPECT_FALSE(candidates[2].corrected);
}

TEST(Correct, AnotherStudyStandsInForModesThatWereNotMeasured) {
  const std::vector<Residual> seed = {
      {"fp32", {.mode = {1, 2}, .predicted_s = 1, .measured_s = 3}},
      {"fp32", {.mode = {2, 1}, .predicted_s = 1, .measured_s = 1.2}},
      {"bf16", {.mode = {4, 1}, .predicted_s = 1, .measured_s = 2}}};
  std::vector<CandidateRecord> candidates = {Candidate(1, 2, 1.0), Candidate(1, 2, 2.0),
                                             Candidate(2, 1, 4.0), Candidate(4, 1, 1.0)};
  candidates[0].measured.emplace().step_time_s = 1.5;
  CorrectPredictions(seed, candidates);
  EXPECT_DOUBLE_EQ(candidates[1].prediction()->step_time_s, 3.0)
      << "what this study measured counts";
  EXPECT_DOUBLE_EQ(candidates[2].prediction()->step_time_s, 4.8);
  EXPECT_GT(candidates[2].prediction()->step_time_high_s, 4.8 * 1.2) << "as unsure as it corrects";
  EXPECT_TRUE(candidates[2].corrected);
  EXPECT_FALSE(candidates[3].corrected) << "another precision says nothing";
}

TEST(Correct, WithNothingMeasuredNothingChanges) {
  std::vector<CandidateRecord> candidates = {Candidate(1, 1, 1.0)};
  CorrectPredictions({}, candidates);
  EXPECT_DOUBLE_EQ(candidates[0].dry_run->step_time_s, 1.0);
  EXPECT_FALSE(candidates[0].corrected);
}

}  // namespace
}  // namespace trimtab

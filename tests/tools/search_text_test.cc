#include "tools/search_text.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

SearchResult SomeResult() {
  SearchResult result;
  result.space = {
      .enumerated = 10, .feasible = 3, .pruned = {{"zero-requires-dp", 5}, {"memory", 2}}};
  RankingRow measured;
  measured.layout = "tp=2,dp=1,mbs=4,precision=bf16";
  measured.groups = "tp=2,dp=1,mbs=4";
  measured.precision = "bf16";
  measured.optimizer_state = "full";
  measured.predicted_tokens_per_s = 900;
  measured.predicted_peak_mem_bytes = 2048;
  measured.measured_tokens_per_s = 1000;
  measured.measured_peak_mem_bytes = 2048;
  measured.peak_mem_error = 0;
  measured.state = "measured";
  RankingRow predicted;
  predicted.layout = "tp=1,dp=2,mbs=4";
  predicted.groups = predicted.layout;
  predicted.precision = "fp32";
  predicted.optimizer_state = "reduced";
  predicted.predicted_tokens_per_s = 800;
  predicted.state = "predicted";
  result.ranking = {measured, predicted, predicted};
  result.numerics = {{"bf16", "full", "bf16 is this", "full is that", 0, 0},
                     {"fp32", "reduced", "fp32 is that", "reduced is this", 1, 0.125}};
  result.recommendation.measured = true;
  result.recommendation.binds = "exposed_tp";
  result.recommendation.binds_share = 0.25;
  result.recommendation.alternative = 1;
  result.recommendation.alternative_cost = 0.125;
  result.recommendation.contender = 2;
  result.recommendation.contender_gain = 0.03;
  return result;
}

TEST(SearchText, TellsWhatWasPrunedRankedAndRecommended) {
  const std::string text = SearchText(SomeResult(), 2, /*bold=*/false);
  for (const char* part : {
           "10 candidates, 3 left after pruning\n      5  zero-requires-dp\n      2  memory\n",
           "\n1  tp=2,dp=1,mbs=4  bf16       full         1000        900  -10.0 %",
           "\n2  tp=1,dp=2,mbs=4  fp32       reduced         -        800        -",
           "\nbf16      bf16 is this\nfp32      fp32 is that\nfull      full is that\n",
           "\nbest of bf16 full: tp=2,dp=1,mbs=4, recommended\n",
           "\nbest of fp32 reduced: tp=1,dp=2,mbs=4, 12.5 % worse\n",
           "... and 1 more\n",
           "recommended: tp=2,dp=1,mbs=4,precision=bf16 at 1000 tokens/s (measured)\n",
           "besides compute, most of its step goes to exposed_tp (25.0 %)\n",
           "next best: tp=1,dp=2,mbs=4, 12.5 % worse\n",
           "worth proving too: tp=1,dp=2,mbs=4, expected 3.0 % better\n",
       }) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
}

TEST(SearchText, TellsHowATrialEnded) {
  CandidateRecord candidate;
  candidate.key = "tp=2";
  TrialProgress progress;
  progress.done = 1;
  progress.failed = 1;
  progress.total = 4;
  progress.eta_s = 8;
  progress.best_tokens_per_s = 310;
  TrialOutcome outcome;
  outcome.state = TrialState::kFailed;
  outcome.message = "exit code 1";
  outcome.seconds = 4;
  EXPECT_EQ(TrialText(candidate, outcome, progress),
            "trial 2/4: tp=2: failed: exit code 1 in 4 s; best 310 tokens/s; ETA 8 s");
  progress = {};
  progress.total = 4;
  outcome.state = TrialState::kCancelled;
  outcome.message = "cancelled";
  EXPECT_EQ(TrialText(candidate, outcome, progress), "trial 0/4: tp=2: cancelled in 4 s");
  progress.done = 4;
  outcome.state = TrialState::kDone;
  candidate.measured = Measurement{};
  candidate.measured->tokens_per_s = 123.4;
  EXPECT_EQ(TrialText(candidate, outcome, progress), "trial 4/4: tp=2: 123 tokens/s in 4 s");
}

}  // namespace
}  // namespace trimtab

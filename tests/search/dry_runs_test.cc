// Which candidates a search dry-runs, by what prices, and what it makes of them.
#include <gtest/gtest.h>

#include <utility>

#include "engine/base/error.h"
#include "search/driver.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

/// Dry runs of layouts without tensor parallelism are slow; all may be, or need more memory.
class SlowDryRuns : public FakePredictor {
 public:
  Prediction DryRun(const RunConfig& run) override {
    Prediction prediction = FakePredictor::DryRun(run);
    if (run.layout.tp == 1) {
      prediction.step_time_s *= 2;
      prediction.tokens_per_s /= 2;
    }
    prediction.step_time_s *= slower;
    prediction.tokens_per_s /= slower;
    prediction.peak_mem_bytes += more_bytes;
    return prediction;
  }
  double slower = 1;
  int64_t more_bytes = 0;
};

/// What a search says of a space in which nothing is feasible.
std::string WhyInfeasible(const TrainingSearch& options, Predictor& predictor) {
  FakeRunner runner;
  SearchEvents events;
  try {
    RunSearch(options, predictor, runner, events);
  } catch (const InfeasibleError& error) {
    return error.what();
  }
  ADD_FAILURE() << "found something";
  return "";
}

TEST(DryRuns, RecommendsNothingWithoutADryRun) {
  SlowDryRuns predictor;
  FakeRunner runner;
  SearchEvents events;
  TrainingSearch options = TinySearch(ScratchPath("sinking.db"));
  options.race.prove_count = 0;
  options.problem.precisions = {Precision::kFp32, Precision::kBf16};
  const SearchResult result = RunSearch(options, predictor, runner, events);
  EXPECT_EQ(result.recommended().prediction_tier, "dry_run");
  for (const NumericsRow& each : result.numerics) {
    EXPECT_EQ(result.ranking[each.row].prediction_tier, "dry_run");
  }
  EXPECT_GT(predictor.dry_runs, options.dry_run_count);
  EXPECT_LT(predictor.dry_runs, static_cast<int64_t>(result.ranking.size()));

  options.study_path = ScratchPath("no_dry_runs.db");
  options.dry_run_count = 0;
  EXPECT_EQ(RunSearch(options, predictor, runner, events).recommended().prediction_tier,
            "closed_form")
      << "none was wanted";
}

TEST(DryRuns, WhatNoDryRunFitsIsInfeasible) {
  SlowDryRuns predictor;
  predictor.more_bytes = 1'000'000;
  TrainingSearch options = TinySearch(ScratchPath("no_dry_run_fits.db"));
  options.problem.memory_per_rank_bytes = 100'000;
  const std::string text = WhyInfeasible(options, predictor);
  EXPECT_NE(text.find(" behind those that dry runs ruled out; "), std::string::npos) << text;
  EXPECT_NE(text.find("the leanest, "), std::string::npos) << text;
}

// How near the best comes to what is required.
TEST(DryRuns, WhatNoDryRunIsFastEnoughForNamesTheFastest) {
  SlowDryRuns predictor;
  predictor.slower = 1.1;
  FakeRunner runner;
  SearchEvents events;
  TrainingSearch options = TinySearch(ScratchPath("no_dry_run_is_fast.db"));
  options.race.prove_count = 0;
  const SearchResult result = RunSearch(options, predictor, runner, events);
  const double tokens_per_s = result.recommended_candidate().prediction()->tokens_per_s;
  options.study_path = ScratchPath("no_dry_run_is_fast_enough.db");
  options.problem.tokens = 1e9;
  const double days = options.problem.tokens / tokens_per_s / 86400;
  options.problem.requirements = ParseTrainingRequirements(fmt::format("days<={}", 0.999 * days));
  const std::string text = WhyInfeasible(options, predictor);
  EXPECT_NE(text.find("the fastest, "), std::string::npos) << text;
  EXPECT_NE(text.find(" tokens/s are too few for days<="), std::string::npos) << text;
}

/// Says which profile its dry runs were priced by.
class PricedPredictor : public FakePredictor {
 public:
  explicit PricedPredictor(std::vector<std::string>& seen, std::string profile)
      : seen_(seen), profile_(std::move(profile)) {}
  Prediction DryRun(const RunConfig& run) override {
    seen_.push_back(profile_);
    return FakePredictor::DryRun(run);
  }
  std::unique_ptr<Predictor> For(const Problem& problem) const override {
    return std::make_unique<PricedPredictor>(seen_, problem.cluster.profile.name);
  }

 private:
  std::vector<std::string>& seen_;
  std::string profile_;
};

TEST(DryRuns, AResumedStudyKeepsItsPrices) {
  std::vector<std::string> seen;
  PricedPredictor predictor(seen, "none");
  FakeRunner runner;
  SearchEvents events;
  TrainingSearch options = TinySearch(ScratchPath("prices.db"));
  options.race.prove_count = 0;
  RunSearch(options, predictor, runner, events);
  const size_t before = seen.size();
  options.study.resume = true;
  options.dry_run_count = 9;
  options.problem.cluster.profile.name = "todays";
  EXPECT_EQ(RunSearch(options, predictor, runner, events).problem.cluster.profile.name, "fake-cpu");
  EXPECT_GT(seen.size(), before);
  for (const std::string& profile : seen) EXPECT_EQ(profile, "fake-cpu");
}

}  // namespace
}  // namespace trimtab

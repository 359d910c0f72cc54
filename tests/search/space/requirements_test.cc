// What a training run must keep to: how it is asked for, and that a search does.
#include "search/space/requirements.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost_model/goodput.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/driver.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

using Figure = TrainingRequirement::Figure;

TEST(TrainingRequirements, AreFiguresAndLimits) {
  const std::vector<TrainingRequirement> parsed =
      ParseTrainingRequirements("headroom>=8GiB,gpus<=512,nodes<=64,days<=1.5,price<=2M");
  ASSERT_EQ(parsed.size(), 5u);
  EXPECT_EQ(parsed[0], (TrainingRequirement{Figure::kHeadroom, 8.0 * kGiB, "headroom>=8GiB"}));
  EXPECT_EQ(parsed[1], (TrainingRequirement{Figure::kGpus, 512, "gpus<=512"}));
  EXPECT_EQ(parsed[2], (TrainingRequirement{Figure::kNodes, 64, "nodes<=64"}));
  EXPECT_EQ(parsed[3], (TrainingRequirement{Figure::kDays, 1.5, "days<=1.5"}));
  EXPECT_EQ(parsed[4], (TrainingRequirement{Figure::kPrice, 2e6, "price<=2M"}));
  EXPECT_EQ(parsed[3].id(), "require-days");
  EXPECT_TRUE(ParseTrainingRequirements("").empty());
}

TEST(TrainingRequirements, ThatMakeNoSenseAreRefused) {
  for (const char* text : {"days", "days<=", "days<=x", "days<=-1", "days<=0", "days>=3",
                           "days<=2M", "gpus<=1.5", "gpus<1", "nodes<=1e300", "headroom<=8GiB",
                           "headroom>=lots", "weeks<=3", "days<=3,", "price<=2MM", "days<=inf"}) {
    EXPECT_THROW(ParseTrainingRequirements(text), UsageError) << text;
  }
}

Problem Asking(const std::string& text) {
  Problem problem = TinyProblem();
  problem.requirements = ParseTrainingRequirements(text);
  return problem;
}

TEST(TrainingRequirements, ThatCannotBeMeasuredAreRefused) {
  for (const char* text : {"days<=3", "price<=3", "gpus<=3", "nodes<=1"}) {
    EXPECT_THROW(RequireMeasurable(Asking(text)), UsageError) << text;
  }
  Problem priced = Asking("days<=3,price<=3,headroom>=1MiB");
  priced.tokens = 1e9;
  EXPECT_THROW(RequireMeasurable(priced), UsageError) << "no price";
  priced.cluster.price_per_gpu_hour = 2;
  RequireMeasurable(priced);
}

TEST(TrainingRequirements, LimitTheNumberOfGpus) {
  const auto allowed = [](const std::string& text, const std::vector<int64_t>& gpus) {
    Problem problem = Asking(text);
    problem.cluster = LoadCluster("16x8xh100");
    problem.gpus = gpus;
    return AllowedGpus(problem);
  };
  using Gpus = std::vector<int64_t>;
  EXPECT_EQ(allowed("gpus<=100", {}), Gpus({96}));
  EXPECT_EQ(allowed("nodes<=4,gpus<=100", {}), Gpus({32}));
  EXPECT_EQ(allowed("gpus<=4", {}), Gpus({4}));
  EXPECT_EQ(allowed("gpus<=128", {}), Gpus({128}));
  EXPECT_EQ(allowed("nodes<4", {}), Gpus({24}));
  EXPECT_EQ(allowed("gpus<=1000", {}), Gpus({128}));
  EXPECT_EQ(allowed("nodes<=4", {8, 32, 64}), Gpus({8, 32}));
  EXPECT_THROW(allowed("nodes<=4", {64, 128}), UsageError);
}

TEST(TrainingRequirements, NoMoreGpusThanRanksAreAllowed) {
  Problem problem = Asking("");
  problem.cluster = LoadCluster("16x8xh100");
  problem.max_ranks = 20;
  EXPECT_EQ(AllowedGpus(problem), std::vector<int64_t>{16}) << "whole nodes";
  problem.max_ranks = 5;
  EXPECT_EQ(AllowedGpus(problem), std::vector<int64_t>{5});
  problem.max_ranks = 20;
  problem.gpus = {8, 16, 32};
  EXPECT_EQ(AllowedGpus(problem), (std::vector<int64_t>{8, 16}));
  problem.gpus = {32};
  EXPECT_THROW(AllowedGpus(problem), UsageError);
}

TEST(TrainingRequirements, LeaveHeadroomInMemory) {
  Problem problem = Asking("headroom>=64MiB");
  const int64_t all = problem.cluster.memory_bytes;
  RunConfig run;
  EXPECT_EQ(MemoryLimitBytes(problem, run), all - 64 * kMiB);
  problem.memory_per_rank_bytes = 100 * kMiB;
  EXPECT_EQ(MemoryLimitBytes(problem, run), 36 * kMiB);
  problem.memory_per_rank_bytes = kMiB;
  EXPECT_EQ(MemoryLimitBytes(problem, run), 1) << "and not 0, no limit";
}

class IgnoredEvents : public SearchEvents {};

TEST(TrainingRequirements, AreKeptByEveryCandidate) {
  FakePredictor predictor;
  FakeRunner runner;
  IgnoredEvents events;
  TrainingSearch options = TinySearch(ScratchPath("all.db"));
  options.problem.tokens = 1e9;
  options.race.prove_count = 0;
  const auto days_of = [&](const CandidateRecord& candidate) {
    const TrainingSpeed speed = {.ranks = candidate.run.layout.world_size(),
                                 .tokens_per_s = candidate.closed_form->tokens_per_s,
                                 .checkpoint_bytes = CheckpointBytes(options.problem.model)};
    return CostOfTraining(speed, options.problem.cluster, options.problem.tokens).days();
  };
  const SearchResult all = RunSearch(options, predictor, runner, events);
  const double days = days_of(all.candidates[all.ranking[all.ranking.size() / 2].candidate]);

  options.study_path = ScratchPath("days.db");
  options.problem.requirements = ParseTrainingRequirements(fmt::format("days<={}", days));
  const SearchResult some = RunSearch(options, predictor, runner, events);
  EXPECT_EQ(some.space.size, all.space.size);
  EXPECT_EQ(some.recommended().layout, all.recommended().layout);
  for (const RankingRow& row : some.ranking) {
    EXPECT_LE(days_of(some.candidates[row.candidate]), days) << row.layout;
  }
  const auto pruned = std::find_if(some.space.pruned.begin(), some.space.pruned.end(),
                                   [](const auto& each) { return each.first == "require-days"; });
  ASSERT_NE(pruned, some.space.pruned.end());
  EXPECT_GT(pruned->second, 0);

  options.study_path = ScratchPath("none.db");
  options.problem.requirements = ParseTrainingRequirements("days<=1e-9");
  try {
    RunSearch(options, predictor, runner, events);
    FAIL() << "found something";
  } catch (const InfeasibleError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("by require-days"), std::string::npos) << text;
    EXPECT_NE(text.find("without --require days<=1e-9"), std::string::npos) << text;
  }
}

TEST(Requirements, ThatTrainingDoesNotMeetAreNamedWithTheirFigures) {
  using Unmet = std::vector<std::string>;
  const auto asked = ParseTrainingRequirements("days<=30,price<=2M,gpus<=512,headroom>=8GiB");
  EXPECT_EQ(UnmetByTraining(asked, 30 * 24, 2e6), Unmet{});
  EXPECT_EQ(UnmetByTraining(asked, 33 * 24, 1e6), Unmet{"days<=30: 33 days"});
  EXPECT_EQ(UnmetByTraining(asked, 33 * 24, 2.5e6),
            (Unmet{"days<=30: 33 days", "price<=2M: 2.5e+06"}));
  EXPECT_EQ(UnmetByTraining(asked, 1, std::nullopt), Unmet{}) << "no price is known";
}

}  // namespace
}  // namespace trimtab

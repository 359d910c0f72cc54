// Pipelines whose ranks share cores, against schedules worked by hand.
#include "cost_model/shared_cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "engine/families/load_config.h"
#include "engine/schedule/schedules.h"

namespace trimtab {
namespace {

Cluster Machine(int64_t cores) {
  Cluster cluster = LocalMachine(BuiltinProfile("cpu"));
  cluster.cores = cores;
  return cluster;
}

RunConfig Pipeline(int64_t pp, int64_t micro_batches, int64_t tp = 1) {
  RunConfig run;
  run.layout.pp = pp;
  run.layout.tp = tp;
  run.global_batch = micro_batches;
  run.threads_per_rank = 1;
  return run;
}

/// A forward pass takes 1 s, a backward one 2, and `more` times as much on the last of `pp` stages.
std::vector<StageWork> Stages(int64_t pp, double more = 1, double end_s = 0) {
  std::vector<StageWork> stages(static_cast<size_t>(pp), {{1, 1, 1}, end_s});
  stages.back().times = {more, more, more};
  return stages;
}

double Seconds(int64_t pp, int64_t micro_batches, double crowding, double more = 1) {
  return SecondsOnSharedCores(Schedule::k1F1B, {pp, 1, micro_batches}, Stages(pp, more), crowding);
}

TEST(Crowding, IsThreadsForEachCore) {
  EXPECT_EQ(Crowding(Pipeline(4, 8), Machine(4)), 1);
  EXPECT_EQ(Crowding(Pipeline(4, 8), Machine(64)), 1);
  EXPECT_EQ(Crowding(Pipeline(4, 8), Machine(2)), 2);
  EXPECT_EQ(Crowding(Pipeline(2, 8, /*tp=*/2), Machine(1)), 4);
  EXPECT_EQ(Crowding(Pipeline(8, 8), LoadCluster("1x8xh100")), 1);
}

// A core that stages share is never idle: they take as long as their work does on it.
TEST(SecondsOnSharedCores, OneCoreIsNeverIdle) {
  for (const int64_t micro_batches : {1, 2, 3, 16}) {
    EXPECT_NEAR(Seconds(3, micro_batches, /*crowding=*/3), 3.0 * micro_batches, 1e-9);
    EXPECT_NEAR(Seconds(3, micro_batches, 3, /*more=*/4), 6.0 * micro_batches, 1e-9);
  }
}

// Four stages of one thread on two cores: twice as fast where one or two are busy.
TEST(SecondsOnSharedCores, TooFewBusyStagesLeaveCoresUnused) {
  // One micro batch passes four stages both ways, alone.
  EXPECT_NEAR(Seconds(4, 1, 2), 4 * 3 / 2.0, 1e-9);
  // Of two, busy are 1 2 2 2 1 stages.
  EXPECT_NEAR(Seconds(4, 2, 2), 5 * 3 / 2.0, 1e-9);
  // Of four, 1 2 3 4 3 2 1, and with more none beyond that: 0.5 passes more than those of a stage.
  EXPECT_NEAR(Seconds(4, 4, 2), (4 + 0.5) * 3, 1e-9);
  EXPECT_NEAR(Seconds(4, 32, 2), (32 + 0.5) * 3, 1e-9);
}

// With a core for each rank a micro batch would take 15 s. With two for four it is more than half
// of that, for others run beside the last stage at times; one core is never idle.
TEST(SecondsOnSharedCores, AStageWithMoreToDoGetsTheCoresOfThoseThatWait) {
  EXPECT_GT(Seconds(4, 64, /*crowding=*/2, /*more=*/5) / 64, 15 / 2.0);
  EXPECT_LT(Seconds(4, 64, /*crowding=*/2, /*more=*/5) / 64, 1.1 * 15 / 2.0);
  EXPECT_NEAR(Seconds(4, 64, /*crowding=*/4, /*more=*/5) / 64, (3 * 3 + 15) / 4.0, 1e-9);
}

// Whatever the schedule: no less than the work on all cores, nor than the busiest stage's with a
// core for each of its threads; no more than if one stage were busy at a time.
TEST(SecondsOnSharedCores, LieBetweenTheirBounds) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 3);
  for (const Schedule schedule :
       {Schedule::kGpipe, Schedule::k1F1B, Schedule::kInterleaved1F1B, Schedule::kZeroBubble}) {
    for (int trial = 0; trial < 50; ++trial) {
      const int64_t pp = 2 + trial % 3;
      const int64_t vp = schedule == Schedule::kInterleaved1F1B ? 2 : 1;
      const int64_t micro_batches = pp * (1 + trial % 4);
      const double crowding = 1 + seconds(random);
      std::vector<StageWork> stages;
      double all_s = 0;
      double most_s = 0;
      for (int64_t i = 0; i < pp; ++i) {
        const StageWork& stage = stages.emplace_back(
            StageWork{{seconds(random), seconds(random), seconds(random)}, seconds(random)});
        const double own = static_cast<double>(micro_batches) * stage.times.total() + stage.end_s;
        all_s += own;
        most_s = std::max(most_s, own);
      }
      const double step_s =
          SecondsOnSharedCores(schedule, {pp, vp, micro_batches}, stages, crowding);
      EXPECT_GE(step_s, (1 - 1e-9) * all_s / static_cast<double>(pp));
      EXPECT_GE(step_s, (1 - 1e-9) * most_s / crowding);
      EXPECT_LE(step_s, (1 + 1e-9) * all_s / std::min(crowding, static_cast<double>(pp)) *
                            static_cast<double>(pp));
    }
  }
}

TEST(SecondsOnSharedCores, StandInTheEstimate) {
  RunConfig run = Pipeline(4, 4);
  run.model = LoadModelConfig("gpt2-10m");
  run.sequence_length = 64;
  const Estimate crowded = ClosedForm(run, Machine(1));
  EXPECT_GT(ClosedForm(run, Machine(4)).breakdown_s.bubble, 0);
  EXPECT_EQ(crowded.breakdown_s.bubble, 0);
  EXPECT_NEAR(crowded.breakdown_s.total(), crowded.step_time_s, 1e-9 * crowded.step_time_s);
}

// The head stands on the last stage, and the first ends last: what that one does is not the step.
TEST(SecondsOnSharedCores, AreTheSameInTheDryRun) {
  for (const int64_t cores : {1, 2, 3}) {
    RunConfig run = Pipeline(4, 8);
    run.model = LoadModelConfig("gpt2-10m");
    run.sequence_length = 64;
    const double closed_s = ClosedForm(run, Machine(cores)).step_time_s;
    EXPECT_NEAR(DryRun(run, Machine(cores)).step_time_s, closed_s, 0.01 * closed_s) << cores;
  }
}

TEST(FillTo, WaitsOrRunsFaster) {
  Breakdown parts;
  parts.compute = 3;
  parts.optimizer = 1;
  FillTo(5, parts);
  EXPECT_DOUBLE_EQ(parts.bubble, 1);
  EXPECT_DOUBLE_EQ(parts.compute, 3);
  FillTo(2.5, parts);
  EXPECT_DOUBLE_EQ(parts.compute, 1.5);
  EXPECT_DOUBLE_EQ(parts.total(), 2.5);
}

}  // namespace
}  // namespace trimtab

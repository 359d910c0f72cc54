// Pipelines executed with prices: bubbles as the schedules' formulas say, messages hidden or not.
#include "cost_model/dry_run/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/schedule/pipeline.h"
#include "tests/cost_model/dry_run/stage_seconds.h"

namespace trimtab {
namespace {

double Work(const PipelineShape& shape, const StageTimes& times) {
  return static_cast<double>(shape.micro_batches) * times.total();
}

/// Every schedule in a few shapes it takes.
std::vector<std::pair<Schedule, PipelineShape>> Cases() {
  std::vector<std::pair<Schedule, PipelineShape>> cases;
  for (const ScheduleRow& row : Schedules()) {
    const bool interleaved = row.schedule == Schedule::kInterleaved1F1B;
    for (const int64_t pp : {2, 3, 4, 8}) {
      for (const int64_t rounds : {1, 2, 5}) {
        cases.push_back(
            {row.schedule, {.pp = pp, .vp = interleaved ? 2 : 1, .micro_batches = pp * rounds}});
      }
    }
  }
  return cases;
}

TEST(Timeline, StandsIdleAsTheScheduleSaysWhenMessagesTakeNoTime) {
  const StageTimes times = {.forward = 1, .backward_input = 1, .backward_weight = 1};
  for (const auto& [schedule, shape] : Cases()) {
    const auto programs = PlanPipeline(schedule, shape);
    const PipelineTimeline timeline =
        RunPipeline(programs, SecondsOf(programs, shape.vp, times, 0));
    const StageTimeline& slowest = timeline.stages[timeline.slowest()];
    const double idle = RowOf(schedule).idle_time(shape, times);
    EXPECT_NEAR(slowest.end_s, Work(shape, times) + idle, 1e-9)
        << "pp " << shape.pp << " vp " << shape.vp << " micro batches " << shape.micro_batches
        << " schedule " << static_cast<int>(schedule);
  }
}

TEST(Timeline, AccountsForEverySecondOfEveryStage) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (const auto& [schedule, shape] : Cases()) {
    const auto programs = PlanPipeline(schedule, shape);
    std::vector<StageSeconds> stages = SecondsOf(programs, shape.vp, {}, 0);
    for (StageSeconds& stage : stages) {
      for (double& action : stage.actions) action = seconds(random);
      stage.end = seconds(random);
    }
    const PipelineTimeline timeline = RunPipeline(programs, stages);
    for (size_t i = 0; i < stages.size(); ++i) {
      const StageTimeline& stage = timeline.stages[i];
      double work = 0;
      double end = 0;
      for (size_t j = 0; j < programs[i].size(); ++j) {
        const TimeSpan& slice = timeline.slices[i][j];
        EXPECT_GE(slice.end_s - slice.start_s, stages[i].actions[j] - 1e-9);
        if (!IsCompute(programs[i][j].kind)) continue;
        work += stages[i].actions[j];
        EXPECT_GE(slice.start_s, end) << "a stage does one pass at a time";
        end = slice.end_s;
      }
      EXPECT_NEAR(stage.compute_s, work, 1e-9);
      EXPECT_NEAR(stage.compute_s + stage.exposed_s + stage.bubble_s + stages[i].end, stage.end_s,
                  1e-9);
    }
  }
}

double EndOf(Schedule schedule, const PipelineShape& shape, double message) {
  const auto programs = PlanPipeline(schedule, shape);
  const PipelineTimeline timeline =
      RunPipeline(programs, SecondsOf(programs, shape.vp, {}, message));
  return timeline.stages[timeline.slowest()].end_s;
}

// A pass that needs weights which come late waits for them, and who waits for it waits too; weights
// that come while a stage is idle anyway cost nothing.
TEST(Timeline, WaitsForWeightsWhereThePipelineIsNotIdleAnyway) {
  const PipelineShape shape = {.pp = 4, .micro_batches = 8};
  const auto programs = PlanPipeline(Schedule::k1F1B, shape);
  const auto run = [&](size_t stage, double at_s) {
    std::vector<StageSeconds> stages = SecondsOf(programs, shape.vp, {}, 0);
    stages[stage].not_before.resize(programs[stage].size());
    const auto first = std::find_if(programs[stage].begin(), programs[stage].end(),
                                    [](const Action& action) { return IsCompute(action.kind); });
    stages[stage].not_before[static_cast<size_t>(first - programs[stage].begin())] = at_s;
    return RunPipeline(programs, stages);
  };
  const double end_s = run(0, 0).stages[0].end_s;
  const PipelineTimeline early = run(3, 2);  // three passes come before its own
  EXPECT_EQ(early.stages[0].end_s, end_s);
  EXPECT_EQ(early.stages[3].weights_s, 0);
  const PipelineTimeline late = run(0, 2);
  EXPECT_EQ(late.stages[0].weights_s, 2);
  EXPECT_EQ(late.stages[0].end_s, end_s + 2);
  ASSERT_EQ(late.weight_waits[0].size(), 1u);
  EXPECT_EQ(late.weight_waits[0][0].seconds(), 2);
}

TEST(Timeline, GPipeHidesMessagesButThoseThatFillAndDrainIt) {
  const PipelineShape shape = {.pp = 4, .micro_batches = 32};
  const double free = EndOf(Schedule::kGpipe, shape, 0);
  const auto neighbours = static_cast<double>(shape.pp - 1);
  EXPECT_NEAR(EndOf(Schedule::kGpipe, shape, 0.1), free + 2 * neighbours * 0.1, 1e-9);
  // Longer than passes, they follow one another on each way, whatever goes the others: what is
  // left of passes and of other stages' messages only fills and drains the pipeline.
  const double end = EndOf(Schedule::kGpipe, shape, 2.5);
  const auto messages = 2 * static_cast<double>(shape.micro_batches) * 2.5;
  EXPECT_GT(end, messages);
  EXPECT_LT(end, messages + 2 * neighbours * 2.5 + Work(shape, {}) / 4);
}

// Under 1F1B the first stage holds pp micro batches at most, so pp of them take a round trip
// through the pipeline: 3 pp of passes, 2 (pp - 1) messages.
TEST(Timeline, OneForwardOneBackwardExposesARoundTripOfMessages) {
  const PipelineShape shape = {.pp = 4, .micro_batches = 1000};
  const double round_trip = 3 * 4 + 2 * 3 * 0.1;
  const double rounds = static_cast<double>(shape.micro_batches) / 4;
  const double end = EndOf(Schedule::k1F1B, shape, 0.1);
  EXPECT_GT(end, rounds * round_trip);
  EXPECT_LT(end, 1.03 * rounds * round_trip);
}

}  // namespace
}  // namespace trimtab

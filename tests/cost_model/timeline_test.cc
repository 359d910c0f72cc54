// Pipelines executed with prices: bubbles as the schedules' formulas say, messages hidden or not.
#include "cost_model/timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/schedule/pipeline.h"

namespace trimtab {
namespace {

/// Stages that all take `times` for a micro batch, in equal shares of their chunks.
std::vector<StageSeconds> EqualStages(const PipelineShape& shape, const StageTimes& times,
                                      double message = 0) {
  const auto chunks = static_cast<double>(shape.vp);
  const ChunkSeconds chunk = {.forward = times.forward / chunks,
                              .backward_input = times.backward_input / chunks,
                              .backward_weight = times.backward_weight / chunks};
  const StageSeconds stage = {
      .chunks = std::vector<ChunkSeconds>(static_cast<size_t>(shape.vp), chunk),
      .message = message};
  return std::vector<StageSeconds>(static_cast<size_t>(shape.pp), stage);
}

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
    const PipelineTimeline timeline =
        RunPipeline(PlanPipeline(schedule, shape), EqualStages(shape, times), false);
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
    std::vector<StageSeconds> stages = EqualStages(shape, {}, seconds(random) / 4);
    for (StageSeconds& stage : stages) {
      for (ChunkSeconds& chunk : stage.chunks) {
        chunk = {seconds(random), seconds(random), seconds(random), 0.05};
      }
      stage.end = seconds(random);
    }
    const auto programs = PlanPipeline(schedule, shape);
    const PipelineTimeline timeline = RunPipeline(programs, stages, true);
    for (size_t i = 0; i < stages.size(); ++i) {
      const StageTimeline& stage = timeline.stages[i];
      double work = 0;
      for (const ChunkSeconds& chunk : stages[i].chunks) {
        work += static_cast<double>(shape.micro_batches) *
                    (chunk.forward + chunk.backward_input + chunk.backward_weight) -
                chunk.overwriting_less;
      }
      EXPECT_NEAR(stage.compute_s, work, 1e-9);
      EXPECT_NEAR(stage.compute_s + stage.exposed_s + stage.bubble_s + stages[i].end, stage.end_s,
                  1e-9);
      double end = 0;
      for (const TimelineSlice& slice : timeline.slices[i]) {
        EXPECT_GE(slice.start_s, end - 1e-12) << "a stage does one pass at a time";
        end = slice.end_s;
      }
    }
  }
}

double EndOf(Schedule schedule, const PipelineShape& shape, double message) {
  const PipelineTimeline timeline =
      RunPipeline(PlanPipeline(schedule, shape), EqualStages(shape, {}, message), false);
  return timeline.stages[timeline.slowest()].end_s;
}

TEST(Timeline, GPipeHidesMessagesButThoseThatFillAndDrainIt) {
  const PipelineShape shape = {.pp = 4, .micro_batches = 32};
  const double free = EndOf(Schedule::kGpipe, shape, 0);
  const auto neighbours = static_cast<double>(shape.pp - 1);
  EXPECT_NEAR(EndOf(Schedule::kGpipe, shape, 0.1), free + 2 * neighbours * 0.1, 1e-9);
  EXPECT_GT(EndOf(Schedule::kGpipe, shape, 2.5), static_cast<double>(shape.micro_batches) * 5)
      << "two messages of a micro batch take longer than its passes";
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

// What stages are said to wait for one another, against pipelines that are carried out.
#include "cost_model/closed_form/stage_waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cost_model/dry_run/timeline.h"
#include "engine/schedule/pipeline.h"
#include "tests/cost_model/dry_run/stage_seconds.h"

namespace trimtab {
namespace {

/// When a pipeline is done whose stages all take `times` for a micro batch.
double CarriedOut(Schedule schedule, const PipelineShape& shape, const StageTimes& times,
                  double message_s) {
  const auto programs = PlanPipeline(schedule, shape);
  const PipelineTimeline timeline =
      RunPipeline(programs, SecondsOf(programs, shape.vp, times, message_s));
  return timeline.stages[timeline.slowest()].end_s;
}

double WithoutRoundTrips(Schedule schedule, const PipelineShape& shape, const StageTimes& times,
                         double message_s) {
  return static_cast<double>(shape.micro_batches) * times.total() +
         RowOf(schedule).idle_time(shape, times) + ExposedBetweenStages(shape, times, message_s);
}

double RoundTrips(Schedule schedule, const PipelineShape& shape, const StageTimes& times,
                  double message_s) {
  const auto stages = static_cast<double>(shape.pp);
  const StageTimes all = {stages * times.forward, stages * times.backward_input,
                          stages * times.backward_weight};
  return ExposedByRoundTrips(shape, times, message_s, RowOf(schedule).round_trip(all, times));
}

// Four stages take 4 x 6 s and the messages there and back 6 s, while the first stage has passes of
// 24 s: 1.5 s are missing for each of four micro batches.
TEST(StageWaits, AMicroBatchWaitsForItsShareOfARoundTrip) {
  const PipelineShape shape = {.pp = 4, .vp = 1, .micro_batches = 9};
  const StageTimes times = {2, 3, 1};
  EXPECT_DOUBLE_EQ(RoundTrips(Schedule::k1F1B, shape, times, 1), 8 * 1.5);
  // Three stages' weights' parts are beside the way: 3 s of messages wait only once.
  EXPECT_DOUBLE_EQ(RoundTrips(Schedule::kZeroBubble, shape, times, 1), 8 * 0.75 + 3);
  EXPECT_DOUBLE_EQ(RoundTrips(Schedule::kZeroBubble, shape, times, 0.5), 3);
  EXPECT_EQ(RoundTrips(Schedule::k1F1B, shape, times, 0), 0);
  // Messages that keep passes waiting already leave more time for a round trip.
  EXPECT_DOUBLE_EQ(RoundTrips(Schedule::k1F1B, shape, times, 5),
                   8 * ((24 + 30) / 4.0 - (6 + (5 - 2) + (5 - 4))));
}

// Messages that are shorter than passes make 1F1B slower with each micro batch.
TEST(StageWaits, PipelinesTakeAsLongAsTheirRoundTrips) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> seconds(0.5, 1.5);
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZeroBubble}) {
    double off = 0;
    double off_without = 0;
    constexpr int kRounds = 500;
    for (int round = 0; round < kRounds; ++round) {
      PipelineShape shape = {.pp = 2 + static_cast<int64_t>(random() % 15)};
      shape.micro_batches = shape.pp * (2 + static_cast<int64_t>(random() % 8));
      // What is published of the idle time of passes in parts holds for parts as long as this.
      StageTimes times = {1, 1, 1};
      if (schedule == Schedule::k1F1B) times = {1, seconds(random), seconds(random)};
      const double message_s = (seconds(random) - 0.5) * 0.3 * times.total();
      const double actual_s = CarriedOut(schedule, shape, times, message_s);
      const double without_s = WithoutRoundTrips(schedule, shape, times, message_s);
      const double step_s = without_s + RoundTrips(schedule, shape, times, message_s);
      EXPECT_NEAR(step_s, actual_s, 0.03 * actual_s) << shape.pp << " " << shape.micro_batches;
      off += std::abs(step_s / actual_s - 1) / kRounds;
      off_without += std::abs(without_s / actual_s - 1) / kRounds;
    }
    EXPECT_LT(off, 0.01);
    EXPECT_GT(off_without, 0.05);
  }
}

// The others begin as many micro batches as they need to hide such messages.
TEST(StageWaits, NoOtherScheduleWaitsForRoundTrips) {
  for (const ScheduleRow& row : Schedules()) {
    const bool waits = row.schedule == Schedule::k1F1B || row.schedule == Schedule::kZeroBubble;
    EXPECT_EQ(row.round_trip != nullptr, waits);
    if (waits) continue;
    const PipelineShape shape = {
        .pp = 4, .vp = row.schedule == Schedule::kInterleaved1F1B ? 2 : 1, .micro_batches = 32};
    const auto chunks = static_cast<double>(shape.vp);
    const StageTimes times = {chunks, chunks, chunks};
    EXPECT_NEAR(CarriedOut(row.schedule, shape, times, 0.5),
                WithoutRoundTrips(row.schedule, shape, times, 0.5), 1e-9);
  }
}

}  // namespace
}  // namespace trimtab

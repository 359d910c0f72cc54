// What bounds say of the stages of a pipeline, against the programs that stages carry out.
#include "cost_model/closed_form/stage_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cost_model/closed_form/stage_waits.h"
#include "cost_model/hardware/cluster.h"

namespace trimtab {
namespace {

std::vector<PipelineShape> ShapesOf(Schedule schedule) {
  std::vector<PipelineShape> shapes;
  for (const int64_t pp : {2, 3, 4, 8}) {
    for (const int64_t micro_batches : {1, 2, 3, 4, 8, 9, 24}) {
      const bool interleaved = schedule == Schedule::kInterleaved1F1B;
      if (interleaved && micro_batches % pp != 0) continue;
      shapes.push_back({pp, interleaved ? 2 : 1, micro_batches});
    }
  }
  return shapes;
}

/// What a stage holds before each backward pass, or its part for inputs.
std::vector<InFlight> HeldBeforeBackward(const StageProgram& program) {
  std::vector<InFlight> held;
  InFlight now;
  for (const Action& action : program) {
    switch (action.kind) {
      case ActionKind::kForward:
        ++now.whole;
        break;
      case ActionKind::kBackward:
        held.push_back(now);
        --now.whole;
        break;
      case ActionKind::kBackwardInput:
        held.push_back(now);
        --now.whole;
        ++now.weights_to_come;
        break;
      default:
        --now.weights_to_come;
    }
  }
  return held;
}

TEST(StageBounds, AStageHoldsWhatIsSaidToBeInFlight) {
  for (const ScheduleRow& row : Schedules()) {
    for (const PipelineShape& shape : ShapesOf(row.schedule)) {
      for (int64_t stage = 0; stage < shape.pp; ++stage) {
        const InFlight least = LeastInFlight(row.schedule, shape, stage);
        const std::vector<InFlight> held = HeldBeforeBackward(row.compute(shape, stage));
        EXPECT_GE(held.front().whole, least.whole);
        EXPECT_TRUE(std::any_of(held.begin(), held.end(),
                                [&](const InFlight& each) {
                                  return each.whole >= least.whole &&
                                         each.weights_to_come >= least.weights_to_come;
                                }))
            << Name(row.schedule) << " pp=" << shape.pp << " stage " << stage << " of "
            << shape.micro_batches << " micro batches: " << least.whole << ", "
            << least.weights_to_come;
      }
    }
  }
}

// Of a chunk whose forward pass leaves 10 of 12 bytes that it takes, and whose part for inputs
// leaves 4 of them, above which it takes 3.
TEST(StageBounds, WhatIsInFlightAddsUp) {
  WaySpans ways;
  for (const Way way : {kForwardFirst, kForwardLater}) ways[way].total = {10, 12};
  for (const Way way : {kInputSetting, kInputAdding}) ways[way].total = {-6, 3};
  PassBytes bytes;
  bytes.Consider(ways, 0, 0, /*several=*/true);
  bytes.left_for_weights = LeftForWeights(ways, /*several_micro_batches=*/true);
  EXPECT_EQ(bytes.Peak({.whole = 1, .weights_to_come = 0}, 1), 13);
  EXPECT_EQ(bytes.Peak({.whole = 3, .weights_to_come = 0}, 1), 33);
  EXPECT_EQ(bytes.Peak({.whole = 3, .weights_to_come = 2}, 1), 41);
}

/// Seconds of a chunk of a stage in parts, alike for every micro batch.
WaySpans InParts(double forward, double input, double weight) {
  WaySpans ways;
  for (const Way first : {kForwardFirst, kInputSetting, kWeightSetting}) {
    const double seconds = first == kForwardFirst   ? forward
                           : first == kInputSetting ? input
                                                    : weight;
    ways[first].seconds = ways[first + 1].seconds = seconds;
  }
  return ways;
}

TEST(StageBounds, StagesAlikeTakeTheScheduleItsIdleTime) {
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZeroBubble}) {
    const PipelineShape shape = {.pp = 4, .vp = 1, .micro_batches = 12};
    StageSums sums(shape, /*message_s=*/0);
    for (size_t stage = 0; stage < 4; ++stage) sums.Add(stage, InParts(2, 3, 1));
    EXPECT_DOUBLE_EQ(sums.Busiest(), 72);
    EXPECT_DOUBLE_EQ(sums.Slowest(schedule, /*longer_weights=*/false),
                     72 + RowOf(schedule).idle_time(shape, {2, 3, 1}));
  }
}

Pricer PricerOf(const Cluster& cluster) {
  return Pricer(cluster.profile, {.ranks = 16, .threads = 1}, cluster.ranks_per_node,
                cluster.cores);
}

/// An end of which passes may hide most.
EndCosts RandomEnd(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.1, 2);
  EndCosts end;
  end.hideable_s = 4 * seconds(random);
  end.next_first_s = seconds(random);
  end.next_rest_s = 4 * seconds(random);
  end.update.compute_s = end.hideable_s + seconds(random);
  return end;
}

// However much longer the weights' parts are, no step is sooner done than was said.
TEST(StageBounds, LongerWeightsPartsFillNoMoreThanIsAllowedFor) {
  const Pricer pricer = PricerOf(LoadCluster("2x8xh100"));
  std::mt19937 random(5);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (int round = 0; round < 1000; ++round) {
    const PipelineShape shape = {.pp = 2 + static_cast<int64_t>(random() % 5),
                                 .vp = 1,
                                 .micro_batches = 1 + static_cast<int64_t>(random() % 20)};
    const double message_s = round % 3 == 0 ? 2 * seconds(random) : 0;
    StageSums least(shape, message_s);
    StageSums longer(shape, message_s);
    const EndCosts end = round % 5 == 0 ? RandomEnd(random) : EndCosts{};
    const bool one_alone = round % 2 == 0;
    for (size_t stage = 0; stage < static_cast<size_t>(shape.pp); ++stage) {
      const double forward = seconds(random);
      const double input = seconds(random);
      const double weight = seconds(random);
      const double more = one_alone && stage > 0 ? 0 : seconds(random);
      least.Add(stage, InParts(forward, input, weight));
      longer.Add(stage, InParts(forward, input, weight + more));
      least.AddEnd(stage, {}, end, pricer);
      longer.AddEnd(stage, {}, end, pricer);
    }
    EXPECT_LE(least.Slowest(Schedule::kZeroBubble, /*longer_weights=*/true),
              longer.Slowest(Schedule::kZeroBubble, /*longer_weights=*/false) + 1e-9)
        << "round " << round;
  }
}

// A message between stages that takes longer than a pass keeps each one waiting but the first.
TEST(StageBounds, MessagesLongerThanPassesAreWaitedFor) {
  const PipelineShape shape = {.pp = 4, .vp = 1, .micro_batches = 9};
  StageSums sums(shape, /*message_s=*/5);
  for (size_t stage = 0; stage < 4; ++stage) sums.Add(stage, InParts(2, 3, 1));
  EXPECT_DOUBLE_EQ(sums.Busiest(), 9 * 6 + 2 * 3 * 5 + 8 * ((5 - 2) + (5 - 4)));
}

// A round trip of 24 s and its messages of 6 s is longer than four micro batches' passes.
TEST(StageBounds, RoundTripsAreWaitedFor) {
  const PipelineShape shape = {.pp = 4, .vp = 1, .micro_batches = 9};
  const auto slowest = [&](Schedule schedule) {
    StageSums sums(shape, /*message_s=*/1);
    for (size_t stage = 0; stage < 4; ++stage) sums.Add(stage, InParts(2, 3, 1));
    return sums.Slowest(schedule, /*longer_weights=*/false);
  };
  const double passes_s = 9 * 6 + 2 * 3 * 1;
  EXPECT_DOUBLE_EQ(slowest(Schedule::kGpipe), passes_s + 3 * 6);
  // One of the passes may hide what ends a step, so its share of a round trip is left out.
  EXPECT_DOUBLE_EQ(slowest(Schedule::k1F1B), passes_s + 3 * 6 + 7 * 1.5);
}

TEST(StageBounds, TheFullestOfAlikeStagesMayBeAmid) {
  const auto fullest = [](const std::vector<int64_t>& layers, int64_t pp) {
    std::vector<LayerRange> chunks;
    for (const int64_t count : layers) chunks.push_back({0, count});
    return FullestOfAlike(chunks, pp);
  };
  EXPECT_EQ(fullest({1, 2, 2, 1}, 4), (std::vector<int64_t>{0, 3, 1}));
  EXPECT_EQ(fullest({2, 2, 2, 1}, 4), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(fullest({1, 1, 1, 1, 1, 2, 1, 1}, 4), (std::vector<int64_t>{0, 3, 1})) << "interleaved";
  EXPECT_EQ(fullest({1, 2}, 2), (std::vector<int64_t>{0, 1}));
}

// Of what may be hidden, the last backward pass and the first forward pass hide what they take.
TEST(StageBounds, AStepEndsBehindItsPasses) {
  const Pricer pricer = PricerOf(LoadCluster("2x8xh100"));
  EndCosts end;
  end.hideable_s = 10;
  end.next_first_s = 1;
  end.next_rest_s = 5;
  end.update.compute_s = 12;
  StageSums sums({.pp = 1, .vp = 1, .micro_batches = 4}, /*message_s=*/0);
  sums.Add(0, InParts(2, 3, 1));
  sums.AddEnd(0, {}, end, pricer);
  ASSERT_EQ(pricer.dp_exposed(), 0);
  const double hidden_s = 4 + 2;
  EXPECT_DOUBLE_EQ(sums.Busiest(), 24 + 12 + 1 + 5 - hidden_s + pricer.slowdown() * hidden_s);
}

// However long passes turn out to be, and so how much they hide of what ends a step.
TEST(StageBounds, LongerPassesHideNoMoreThanTheyTake) {
  const Pricer pricer = PricerOf(LoadCluster("2x8xh100"));
  std::mt19937 random(6);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (int round = 0; round < 20'000; ++round) {
    PipelineShape shape = {.pp = 1 + static_cast<int64_t>(random() % 4), .vp = 1};
    if (shape.pp > 1) shape.vp += static_cast<int64_t>(random() % 3);
    shape.micro_batches = (1 + static_cast<int64_t>(random() % 5)) * (shape.vp > 1 ? shape.pp : 1);
    const double message_s = shape.pp > 1 ? 3 * seconds(random) : 0;
    const EndCosts end = RandomEnd(random);
    const ParallelConfig layout;
    const auto chunks = static_cast<double>(shape.vp);
    const auto micro_batches = static_cast<double>(shape.micro_batches);
    const StageTimes least = {seconds(random), seconds(random), seconds(random)};
    const StageTimes actual = {least.forward + seconds(random) - 0.1,
                               least.backward_input + seconds(random) - 0.1,
                               least.backward_weight + seconds(random) - 0.1};
    StageSums sums(shape, message_s);
    for (int64_t chunk = 0; chunk < shape.vp; ++chunk) {
      sums.Add(0, InParts(least.forward / chunks, least.backward_input / chunks,
                          least.backward_weight / chunks));
    }
    sums.AddEnd(0, layout, end, pricer);
    // The passes that hide messages, in a schedule that goes in rounds.
    const double hiding = shape.vp > 1 ? static_cast<double>(shape.pp) : 1;
    const double step_s = micro_batches * actual.total() +
                          ExposedBetweenStages(shape, actual, message_s) + end.update.seconds() +
                          Beside(layout, hiding * actual.forward,
                                 hiding * (actual.total() - actual.forward), end, pricer)
                              .seconds();
    EXPECT_LE(sums.Busiest(), step_s + 1e-9) << "round " << round;
  }
}

}  // namespace
}  // namespace trimtab

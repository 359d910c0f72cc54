// What holds for the programs of every schedule, over shapes drawn at random.
#include "engine/schedule/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/engine/schedule/stage_clock.h"

namespace trimtab {
namespace {

constexpr int kShapes = 150;

class ScheduleTest : public testing::TestWithParam<Schedule> {
 protected:
  const ScheduleRow& row() const { return RowOf(GetParam()); }
  bool interleaved() const { return GetParam() == Schedule::kInterleaved1F1B; }
  bool splits() const { return GetParam() == Schedule::kZeroBubble; }

  PipelineShape Draw() {
    const auto between = [this](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random_);
    };
    if (!interleaved()) return {.pp = between(1, 9), .vp = 1, .micro_batches = between(1, 24)};
    const int64_t pp = between(2, 8);
    return {.pp = pp, .vp = between(2, 5), .micro_batches = pp * between(1, 4)};
  }

  /// Calls check(shape, programs) for every shape drawn.
  template <typename Check>
  void ForEachShape(const Check& check) {
    for (int i = 0; i < kShapes; ++i) {
      const PipelineShape shape = Draw();
      SCOPED_TRACE(
          fmt::format("pp {}, vp {}, {} micro batches", shape.pp, shape.vp, shape.micro_batches));
      check(shape, PlanPipeline(GetParam(), shape));
      if (HasFailure()) return;
    }
  }

 private:
  std::mt19937 random_{20240611};
};

TEST_P(ScheduleTest, RunsEveryPassOnceInOrderOnEveryChunk) {
  ForEachShape([&](const PipelineShape& shape, const std::vector<StageProgram>& programs) {
    ASSERT_EQ(static_cast<int64_t>(programs.size()), shape.pp);
    for (const StageProgram& program : programs) {
      std::map<std::pair<ActionKind, int32_t>, int32_t> done;  // kind, chunk: micro batches
      for (const Action& action : program) {
        if (!IsCompute(action.kind)) continue;
        const auto count = [&](ActionKind kind) { return done[{kind, action.chunk}]; };
        EXPECT_EQ(action.micro_batch, count(action.kind));
        if (action.kind == ActionKind::kBackwardWeight) {
          EXPECT_LT(action.micro_batch, count(ActionKind::kBackwardInput));
        } else if (action.kind != ActionKind::kForward) {
          EXPECT_LT(action.micro_batch, count(ActionKind::kForward));
        }
        ++done[{action.kind, action.chunk}];
      }
      EXPECT_EQ(static_cast<int64_t>(done.size()), (splits() ? 3 : 2) * shape.vp);
      for (const auto& [pass, count] : done) EXPECT_EQ(count, shape.micro_batches);
    }
  });
}

TEST_P(ScheduleTest, MessagesOfTwoStagesMatchInOrder) {
  ForEachShape([&](const PipelineShape& shape, const std::vector<StageProgram>& programs) {
    struct Half {
      bool gradient;
      int32_t micro_batch;
      int64_t producer;  // number of the chunk, of all chunks
      auto operator<=>(const Half&) const = default;
    };
    std::map<std::pair<int64_t, int64_t>, std::vector<Half>> sends;
    std::map<std::pair<int64_t, int64_t>, std::vector<Half>> receives;
    for (int64_t stage = 0; stage < shape.pp; ++stage) {
      for (const Action& action : programs[static_cast<size_t>(stage)]) {
        if (IsCompute(action.kind)) continue;
        const int64_t chunk = action.chunk * shape.pp + stage;
        switch (action.kind) {
          case ActionKind::kSendActivation:
          case ActionKind::kSendGradient:
            sends[{stage, action.peer}].push_back(
                {action.kind == ActionKind::kSendGradient, action.micro_batch, chunk});
            break;
          case ActionKind::kRecvActivation:
            receives[{action.peer, stage}].push_back({false, action.micro_batch, chunk - 1});
            break;
          default:
            receives[{action.peer, stage}].push_back({true, action.micro_batch, chunk + 1});
        }
      }
    }
    EXPECT_EQ(sends, receives);
    size_t count = 0;
    for (const auto& [pair, list] : sends) count += list.size();
    EXPECT_EQ(static_cast<int64_t>(count), 2 * (shape.pp * shape.vp - 1) * shape.micro_batches);
  });
}

TEST_P(ScheduleTest, SendsAtOnceAndReceivesBeforeUse) {
  ForEachShape([&](const PipelineShape& shape, const std::vector<StageProgram>& programs) {
    for (int64_t stage = 0; stage < shape.pp; ++stage) {
      Action last;  // compute action
      std::map<std::tuple<ActionKind, int32_t, int32_t>, int> received;
      for (const Action& action : programs[static_cast<size_t>(stage)]) {
        const auto take = [&](ActionKind kind) {
          return received[{kind, action.chunk, action.micro_batch}];
        };
        const int64_t chunk = action.chunk * shape.pp + stage;
        if (IsSend(action.kind)) {
          const bool activation = action.kind == ActionKind::kSendActivation;
          EXPECT_EQ(last.kind == ActionKind::kForward, activation);
          EXPECT_EQ(last.micro_batch, action.micro_batch);
          EXPECT_EQ(last.chunk, action.chunk);
        } else if (!IsCompute(action.kind)) {
          ++received[{action.kind, action.chunk, action.micro_batch}];
        } else if (action.kind == ActionKind::kForward) {
          EXPECT_EQ(take(ActionKind::kRecvActivation), chunk > 0 ? 1 : 0);
        } else if (action.kind != ActionKind::kBackwardWeight) {
          EXPECT_EQ(take(ActionKind::kRecvGradient), chunk + 1 < shape.pp * shape.vp ? 1 : 0);
        }
        if (IsCompute(action.kind)) last = action;
      }
    }
  });
}

TEST_P(ScheduleTest, HoldsNoMoreThanItsBound) {
  ForEachShape([&](const PipelineShape& shape, const std::vector<StageProgram>& programs) {
    for (int64_t stage = 0; stage < shape.pp; ++stage) {
      const StageProgram& program = programs[static_cast<size_t>(stage)];
      const ActionKind last = splits() ? ActionKind::kBackwardWeight : ActionKind::kBackward;
      int64_t now = 0;
      int64_t most = 0;
      for (const Action& action : program) {
        if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
        if (action.kind == last) --now;
      }
      EXPECT_EQ(now, 0);
      EXPECT_EQ(most, row().max_in_flight(shape, stage)) << "stage " << stage;
      int64_t chunks = 0;
      for (int64_t chunk = 0; chunk < shape.vp; ++chunk) {
        chunks += MicroBatchesInFlight(program, chunk);
      }
      EXPECT_GE(chunks, most);
    }
  });
}

TEST_P(ScheduleTest, NeverDeadlocksAndIdlesAsPublished) {
  ForEachShape([&](const PipelineShape& shape, const std::vector<StageProgram>& programs) {
    for (const StageTimes& times :
         {StageTimes{1, 1, 1}, {1, 0.5, 0.5}, {1, 2, 1}, {2, 0.5, 0.5}, {1, 0.5, 3}, {0.5, 2, 3}}) {
      const PipelineRun run = RunPipeline(programs, shape, times);
      EXPECT_EQ(run.stuck, "");
      // What is published of interleaved ones holds for passes in the proportion they are made for.
      // For the others it holds always.
      const double backward = times.backward_input + times.backward_weight;
      if (interleaved() && !(backward <= 2 * times.forward && backward >= times.forward)) continue;
      const double work = static_cast<double>(shape.micro_batches) * times.total();
      EXPECT_NEAR(run.end, work + row().idle_time(shape, times), 1e-9 * run.end)
          << times.forward << " " << times.backward_input << " " << times.backward_weight;
    }
  });
}

std::string TestName(const testing::TestParamInfo<Schedule>& info) {
  switch (info.param) {
    case Schedule::k1F1B:
      return "OneForwardOneBackward";
    case Schedule::kGpipe:
      return "Gpipe";
    case Schedule::kInterleaved1F1B:
      return "Interleaved";
    case Schedule::kZeroBubble:
      return "ZeroBubble";
  }
  return "";
}

std::vector<Schedule> AllSchedules() {
  std::vector<Schedule> schedules;
  for (const ScheduleRow& row : Schedules()) schedules.push_back(row.schedule);
  return schedules;
}

INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleTest, testing::ValuesIn(AllSchedules()), TestName);

double BubbleFraction(Schedule schedule, const PipelineShape& shape, const StageTimes& times) {
  const PipelineRun run = RunPipeline(PlanPipeline(schedule, shape), shape, times);
  return 1 - static_cast<double>(shape.micro_batches) * times.total() / run.end;
}

TEST(BubbleTest, AgreesWithThePublishedFractions) {
  const PipelineShape shape = {.pp = 4, .vp = 1, .micro_batches = 8};
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1F1B}) {
    // (p - 1) / (m + p - 1): arXiv:1811.06965, section 2.3, and arXiv:2104.04473, section 2.2.
    EXPECT_NEAR(BubbleFraction(schedule, shape, {1, 1, 1}), 3.0 / 11, 1e-12);
  }
  // (p - 1) / (v m + p - 1).
  EXPECT_NEAR(BubbleFraction(Schedule::kInterleaved1F1B, {4, 2, 8}, {1, 1, 1}), 3.0 / 19, 1e-12);
  // A third of 1F1B's idle time: 3 units against 9, beside 24 of work.
  EXPECT_NEAR(BubbleFraction(Schedule::kZeroBubble, shape, {1, 1, 1}), 3.0 / 27, 1e-12);
  EXPECT_NEAR(BubbleFraction(Schedule::k1F1B, shape, {1, 1, 1}), 9.0 / 33, 1e-12);
}

TEST(PlanPipelineTest, OneStageSendsNothing) {
  const StageProgram expected = {{ActionKind::kForward, 0, 0},
                                 {ActionKind::kBackward, 0, 0},
                                 {ActionKind::kForward, 0, 1},
                                 {ActionKind::kBackward, 0, 1}};
  EXPECT_EQ(PlanPipeline(Schedule::k1F1B, {.pp = 1, .vp = 1, .micro_batches = 2}),
            std::vector<StageProgram>{expected});
}

TEST(PlanPipelineTest, LastStageOf1F1BAlternates) {
  const StageProgram expected = {
      {ActionKind::kRecvActivation, 0, 0, 0}, {ActionKind::kForward, 0, 0},
      {ActionKind::kRecvActivation, 0, 1, 0}, {ActionKind::kBackward, 0, 0},
      {ActionKind::kSendGradient, 0, 0, 0},   {ActionKind::kForward, 0, 1},
      {ActionKind::kBackward, 0, 1},          {ActionKind::kSendGradient, 0, 1, 0}};
  EXPECT_EQ(PlanPipeline(Schedule::k1F1B, {.pp = 2, .vp = 1, .micro_batches = 2})[1], expected);
}

}  // namespace
}  // namespace trimtab

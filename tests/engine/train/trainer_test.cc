#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

/// One sequence for ever: training must learn it by heart.
class OneSample final : public TokenSource {
 public:
  void Sample(int64_t, std::span<int32_t> tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((7 * i + 3) % 61);
  }
  int64_t vocab_size() const override { return 61; }
};

TEST(TrainerTest, LearnsARepeatedSequence) {
  RunConfig run = SmallRun(false);
  run.steps = 60;
  const TrainedLosses trained = TrainOnRanks(run, OneSample(), run.steps);
  EXPECT_NEAR(trained.losses.front(), std::log(61.0), 0.3) << "a fresh model guesses evenly";
  EXPECT_LT(trained.losses.back(), 0.1);
}

TEST(TrainerTest, ThreadsDoNotChangeTheLosses) {
  RunConfig run = SmallRun(true);
  const TrainedLosses one = TrainOnRanks(run, OneSample(), 5);
  run.threads_per_rank = 2;
  const TrainedLosses two = TrainOnRanks(run, OneSample(), 5);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], two.losses[i], 1e-5 * one.losses[i]);
  }
}

TEST(TrainerTest, RepeatsBitForBit) {
  const RunConfig run = SmallRun(true);
  EXPECT_EQ(TrainOnRanks(run, OneSample(), 5).losses, TrainOnRanks(run, OneSample(), 5).losses);
}

TEST(TrainerTest, StopsAtTheMemoryLimit) {
  const RunConfig run = SmallRun(false);
  const auto device = MakeCpuDevice(1);
  device->memory().set_limit_bytes(100'000);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  EXPECT_THROW(Trainer(run, context, *device), OutOfMemoryError);
  EXPECT_EQ(device->memory().current_total(), 0) << "a failed start leaves memory behind";
}

TEST(TrainerTest, ReportsALossThatIsNotFinite) {
  RunConfig run = SmallRun(false);
  run.optimizer.learning_rate = 1e30;
  run.optimizer.clip_grad = 0;
  EXPECT_THROW(TrainOnRanks(run, OneSample(), 10), Error);
}

// A loss scale far too large costs steps, not the run.
TEST(TrainerTest, SkipsStepsUntilTheLossScaleFits) {
  RunConfig run = SmallRun(false);
  run.layout.numerics.precision = Precision::kFp16;
  run.loss_scale.initial = 0x1p32;
  const auto device = MakeCpuDevice(1);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, *device);
  const StepResult first = trainer.Step(OneSample(), 0);
  EXPECT_TRUE(first.skipped);
  EXPECT_EQ(first.loss_scale, 0x1p32);
  int64_t step = 1;
  StepResult result = first;
  while (result.skipped && step < 30) result = trainer.Step(OneSample(), step++);
  EXPECT_FALSE(result.skipped);
  EXPECT_EQ(result.loss, first.loss) << "skipped steps change nothing";
  EXPECT_EQ(result.loss_scale, std::ldexp(first.loss_scale, -static_cast<int>(step - 1)));
  EXPECT_LT(trainer.Step(OneSample(), step).loss, first.loss);
}

TEST(TrainerTest, FailsWhenTheLossScaleCannotFall) {
  RunConfig run = SmallRun(false);
  run.layout.numerics.precision = Precision::kFp16;
  run.loss_scale = {.initial = 0x1p32, .minimum = 0x1p32};
  EXPECT_THROW(TrainOnRanks(run, OneSample(), 1), Error);
}

TEST(TrainerTest, DryRunPeakIsTheMeasuredPeak) {
  const RunConfig run = SmallRun(true);
  const auto device = MakeMetaDevice(1);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer dry(run, context, *device);
  dry.Step(OneSample(), 0);
  EXPECT_EQ(TrainOnRanks(run, OneSample(), 2).peak_bytes[0], device->memory().peak_total());
}

}  // namespace
}  // namespace trimtab

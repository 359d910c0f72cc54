#include "engine/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

OptimizerConfig Config() {
  OptimizerConfig config;
  config.learning_rate = 1.0;
  config.min_learning_rate = 0.1;
  config.warmup_steps = 4;
  return config;
}

TEST(LearningRateTest, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 0, 24), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 3, 24), 1.0);
}

TEST(LearningRateTest, FollowsACosineToTheMinimum) {
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 4, 24), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 14, 24), 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 24, 24), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 1000, 24), 0.1);
}

TEST(LearningRateTest, DecayStepsReplaceTheLengthOfTheRun) {
  OptimizerConfig config = Config();
  config.decay_steps = 14;
  EXPECT_DOUBLE_EQ(LearningRate(config, 14, 1000), 0.1);
}

TEST(LearningRateTest, ARunAllWarmUpNeverDividesByZero) {
  OptimizerConfig config = Config();
  config.warmup_steps = 24;
  EXPECT_DOUBLE_EQ(LearningRate(config, 23, 24), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 24, 24), 1.0);
}

// SameLearningRates is what comparing every step to come says.
TEST(LearningRateTest, SchedulesAreTheSameWhereAllRatesToComeAre) {
  const double rates[] = {0.5, 1.0};
  std::vector<std::pair<OptimizerConfig, int64_t>> schedules;
  for (const double minimum : rates) {
    for (const int64_t warmup : {0, 2, 5}) {
      for (const int64_t decay : {0, 6, 9}) {
        for (const int64_t steps : {6, 12}) {
          OptimizerConfig config;
          config.learning_rate = 1;
          config.min_learning_rate = minimum;
          config.warmup_steps = warmup;
          config.decay_steps = decay;
          schedules.emplace_back(config, steps);
        }
      }
    }
  }
  for (const auto& [a, a_steps] : schedules) {
    for (const auto& [b, b_steps] : schedules) {
      for (const int64_t from : {0, 1, 3, 6, 8, 20}) {
        bool same = true;
        for (int64_t step = from; step < 40; ++step) {
          same = same && LearningRate(a, step, a_steps) == LearningRate(b, step, b_steps);
        }
        EXPECT_EQ(SameLearningRates(a, a_steps, b, b_steps, from), same)
            << from << ": " << a.min_learning_rate << " " << a.warmup_steps << " " << a.decay_steps
            << " " << a_steps << "; " << b.min_learning_rate << " " << b.warmup_steps << " "
            << b.decay_steps << " " << b_steps;
      }
    }
  }
}

}  // namespace
}  // namespace trimtab

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

}  // namespace
}  // namespace trimtab

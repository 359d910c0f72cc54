#include "engine/optim/loss_scaler.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

constexpr LossScaleConfig kConfig = {.initial = 8, .minimum = 2, .growth_interval = 3};

TEST(LossScalerTest, IsOneWithoutScaling) {
  LossScaler scaler;
  scaler.EndStep(/*overflowed=*/true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(scaler.skipped(), 0);
  EXPECT_FALSE(scaler.CanSkip());
}

TEST(LossScalerTest, HalvesOnOverflowDownToTheMinimum) {
  LossScaler scaler(kConfig);
  EXPECT_TRUE(scaler.CanSkip());
  scaler.EndStep(true);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.EndStep(true);
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_FALSE(scaler.CanSkip()) << "at the minimum an overflow is an error";
  EXPECT_EQ(scaler.skipped(), 2);
}

TEST(LossScalerTest, DoublesAfterGoodStepsInARow) {
  LossScaler scaler(kConfig);
  scaler.EndStep(false);
  scaler.EndStep(false);
  scaler.EndStep(true);  // starts the count again
  for (int i = 0; i < 2; ++i) scaler.EndStep(false);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.EndStep(false);
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScalerTest, GoesOnWhereItWas) {
  LossScaler first(kConfig);
  first.EndStep(true);
  first.EndStep(false);
  LossScaler second(kConfig);
  second.Restore(first.scale(), first.good_steps(), first.skipped());
  for (int i = 0; i < 2; ++i) {
    first.EndStep(false);
    second.EndStep(false);
  }
  EXPECT_EQ(second.scale(), first.scale());
  EXPECT_EQ(second.good_steps(), first.good_steps());
  EXPECT_EQ(second.skipped(), 1);
}

}  // namespace
}  // namespace trimtab

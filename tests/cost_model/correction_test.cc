#include "cost_model/correction.h"

#include <gtest/gtest.h>

#include <vector>

namespace trimtab {
namespace {

TEST(FitCorrection, TakesTheMedianRatioOfEachMode) {
  const Mode one = {1, 2};
  const Mode two = {2, 1};
  const std::vector<PredictionSample> samples = {{one, 1.0, 1.2},
                                                 {one, 2.0, 2.4},
                                                 {one, 1.0, 9.0},  // a disturbed trial
                                                 {two, 1.0, 0.9}};
  const Correction correction = FitCorrection(samples);
  ASSERT_EQ(correction.factors.size(), 2u);
  EXPECT_DOUBLE_EQ(correction.factors.at(one).ratio, 1.2);
  EXPECT_EQ(correction.factors.at(one).samples, 3);
  EXPECT_DOUBLE_EQ(correction.factors.at(one).half_width, 0.05);
  EXPECT_DOUBLE_EQ(correction.factors.at(two).ratio, 0.9);
  EXPECT_DOUBLE_EQ(correction.factors.at(two).half_width, 0.15);
}

TEST(FitCorrection, NothingMeasuredCorrectsNothing) {
  EXPECT_TRUE(FitCorrection({}).factors.empty());
}

TEST(Apply, ScalesEveryPartAndMarksTheEstimateCalibrated) {
  Estimate estimate;
  estimate.breakdown_s = {1, 2, 3, 4, 5, 6};
  estimate.step_time_s = estimate.breakdown_s.total();
  Correction correction;
  correction.factors[{2, 1}] = {.ratio = 2, .half_width = 0.25, .samples = 4};
  Apply(correction, {1, 2}, estimate);
  EXPECT_DOUBLE_EQ(estimate.step_time_s, 21) << "another mode's factor is not ours";
  EXPECT_EQ(estimate.trust, Trust::kModelled);
  Apply(correction, {2, 1}, estimate);
  EXPECT_DOUBLE_EQ(estimate.step_time_s, 42);
  EXPECT_DOUBLE_EQ(estimate.breakdown_s.total(), 42);
  EXPECT_DOUBLE_EQ(estimate.step_time_high_s, 42 * 1.25);
  EXPECT_DOUBLE_EQ(estimate.step_time_low_s, 42 / 1.25);
  EXPECT_EQ(estimate.trust, Trust::kCalibrated);
}

}  // namespace
}  // namespace trimtab

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

}  // namespace
}  // namespace trimtab

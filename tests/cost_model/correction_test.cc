#include "cost_model/correction.h"

#include <gtest/gtest.h>

#include <cmath>
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
  // Four expected samples of 3 %, and the disturbed one as three times that; one more prediction.
  EXPECT_NEAR(correction.factors.at(one).half_width,
              2 * std::sqrt((4 * 0.0009 + 0.0081) / 6 * (1 + 1.0 / 3)), 1e-12);
  EXPECT_DOUBLE_EQ(correction.factors.at(two).ratio, 0.9);
  EXPECT_NEAR(correction.factors.at(two).half_width, 2 * std::sqrt(4 * 0.0009 / 4 * 2), 1e-12);
}

TEST(FitCorrection, NothingMeasuredCorrectsNothing) {
  EXPECT_TRUE(FitCorrection({}).factors.empty());
}

}  // namespace
}  // namespace trimtab

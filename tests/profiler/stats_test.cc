#include "profiler/stats.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(Stats, MedianIsTheMiddle) {
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({1, 1, 1, 100}), 1);
}

TEST(Stats, DeviationIgnoresOneDisturbance) {
  const std::vector<double> values = {10, 11, 9, 10, 500};
  const double median = Median(values);
  EXPECT_EQ(median, 10);
  EXPECT_EQ(MedianAbsoluteDeviation(values, median), 1);
  EXPECT_EQ(MedianAbsoluteDeviation({3, 3, 3}, 3), 0);
}

TEST(Stats, StudentQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(StudentQuantile(0.95, 2), 4.303, 1e-3);
  EXPECT_NEAR(StudentQuantile(0.95, 10), 2.228, 1e-3);
  EXPECT_NEAR(StudentQuantile(0.99, 5), 4.032, 1e-3);
  EXPECT_NEAR(StudentQuantile(0.95, 1000), 1.962, 1e-3);
}

}  // namespace
}  // namespace trimtab

#include "cost_model/prices/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trimtab {
namespace {

TEST(BesideEachOther, IsTheLongerOneWhereTheOtherIsShort) {
  EXPECT_EQ(BesideEachOther(2, 0), 2);
  EXPECT_EQ(BesideEachOther(0, 3), 3);
  EXPECT_NEAR(BesideEachOther(1, 1e-3), 1, 1e-5);
}

TEST(BesideEachOther, LiesBetweenNoOverlapAndAllOfIt) {
  for (const double memory_s : {0.1, 0.5, 1.0, 2.0, 10.0}) {
    const double both_s = BesideEachOther(1, memory_s);
    EXPECT_GT(both_s, std::max(1.0, memory_s));
    EXPECT_LT(both_s, 1 + memory_s);
    EXPECT_EQ(both_s, BesideEachOther(memory_s, 1));
    EXPECT_NEAR(BesideEachOther(3, 3 * memory_s), 3 * both_s, 1e-12 * both_s) << "units drop out";
  }
  // By hand: 2^(1/1.8).
  EXPECT_NEAR(BesideEachOther(1, 1), 1.4697, 1e-4);
}

}  // namespace
}  // namespace trimtab

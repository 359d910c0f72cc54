#include "engine/base/count_text.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(CountText, GroupsThousands) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(Thousands(1000), "1,000");
  EXPECT_EQ(Thousands(-1234567), "-1,234,567");
}

TEST(CountText, CountsInWords) {
  EXPECT_EQ(Counted(0, "step"), "0 steps");
  EXPECT_EQ(Counted(1, "step"), "1 step");
  EXPECT_EQ(Counted(1200, "step"), "1,200 steps");
}

TEST(CountText, ShortensLargeCounts) {
  EXPECT_EQ(ShortCount(124475904, 3), "124M");
  EXPECT_EQ(ShortCount(15e12), "15T");
  EXPECT_EQ(ShortCount(999.9e6, 3), "1B");
  EXPECT_EQ(ShortCount(999.4e6, 3), "999M");
  EXPECT_EQ(ShortCount(14370), "14,370");
  EXPECT_EQ(ShortCount(7.5), "7.5");
}

}  // namespace
}  // namespace trimtab

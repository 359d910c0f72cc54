#include "tools/doctor/doctor_speed.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(DescribeSpeed, SaysHowFarTheSpeedWandersAndWhatFollows) {
  const SpeedFinding steady = DescribeSpeed({{1.0, 1.01, 1.02}, {2.0, 2.0, 2.06}});
  EXPECT_TRUE(steady.steady);
  EXPECT_EQ(steady.text, "steady: within 3 %; a search needs few rounds");

  const SpeedFinding nearly = DescribeSpeed({{1.0, 1.1}});
  EXPECT_FALSE(nearly.steady);
  EXPECT_NE(nearly.text.find("between 0.91 and 1.00"), std::string::npos) << nearly.text;

  const SpeedFinding wanders = DescribeSpeed({{1.0, 1.0, 1.0}, {2.0, 4.0, 2.0}});
  EXPECT_FALSE(wanders.steady);
  EXPECT_NE(wanders.text.find("between 0.50 and 1.00"), std::string::npos) << wanders.text;
  EXPECT_NE(wanders.text.find("recommendations still hold"), std::string::npos) << wanders.text;
}

TEST(DescribeSpeed, OneWildReadingInManyIsNoWandering) {
  std::vector<double> readings(40, 1.0);
  readings[7] = 9.0;
  EXPECT_TRUE(DescribeSpeed({readings}).steady);
}

TEST(CheckSpeed, ReadsThisMachine) {
  EXPECT_FALSE(CheckSpeed(0).text.empty()) << "a turn each, however short the time";
}

}  // namespace
}  // namespace trimtab

#include "engine/base/units.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(ParseBytes, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(ParseBytes("1000", "--m"), 1000);
  EXPECT_EQ(ParseBytes("8GiB", "--m"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("1.5MiB", "--m"), 3 << 19);
  EXPECT_EQ(ParseBytes("80GB", "--m"), 80'000'000'000);
  EXPECT_EQ(ParseBytes("12B", "--m"), 12);
  EXPECT_EQ(ParseBytes("2TiB", "--m"), int64_t{2} << 40);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "8XB", "-1GiB", "0", "8 GiB ", "nan", "inf", "1e30GiB"}) {
    EXPECT_THROW(ParseBytes(text, "--memory-per-rank"), UsageError) << text;
  }
  try {
    ParseBytes("8XB", "--memory-per-rank");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--memory-per-rank: '8XB' is not a size; expected a number and a unit, such as "
                 "8GiB or 512MiB");
  }
}

TEST(FormatBytes, ShowsThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(12), "12 B");
  EXPECT_EQ(FormatBytes(3 * kGiB / 2), "1.50 GiB");
  EXPECT_EQ(FormatBytes(64 * kMiB), "64.0 MiB");
  EXPECT_EQ(FormatBytes(640 * kKiB), "640 KiB");
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(FormatSeconds(12e-6), "12 us");
  EXPECT_EQ(FormatSeconds(0.85), "850 ms");
  EXPECT_EQ(FormatSeconds(1.2), "1.2 s");
  EXPECT_EQ(FormatSeconds(200), "3 min 20 s");
  EXPECT_EQ(FormatSeconds(7500), "2 h 5 min");
}

TEST(Rounding, UpToMultiples) {
  EXPECT_EQ(CeilDiv(0, 4), 0);
  EXPECT_EQ(CeilDiv(5, 4), 2);
  EXPECT_EQ(RoundUp(257, 128), 384);
  EXPECT_EQ(RoundUp(256, 128), 256);
}

}  // namespace
}  // namespace trimtab

#include "profiler/other_work.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(ReadCpuLine, AddsUpWhatRan) {
  CoreAccounts accounts;
  ASSERT_TRUE(ReadCpuLine("cpu  1000 200 300 5000 70 1 9 40 500 600", 100, accounts));
  // Guests (the last two) are counted among the users already.
  EXPECT_DOUBLE_EQ(accounts.busy_s, 15.1);
  EXPECT_DOUBLE_EQ(accounts.stolen_s, 0.4);
}

TEST(ReadCpuLine, RefusesOtherLines) {
  CoreAccounts accounts;
  EXPECT_FALSE(ReadCpuLine("", 100, accounts));
  EXPECT_FALSE(ReadCpuLine("cpu0 1 2 3 4 5 6 7 8", 100, accounts));
  EXPECT_FALSE(ReadCpuLine("cpu 1 2 three 4 5 6 7 8", 100, accounts));
}

/// One second on two cores, in which this process waited as long as others ran.
struct Second {
  double others_s = 0;
  double own_s = 0;
  double waited_s = 0;
  double stolen_s = 0;

  double Share(bool knows_waits = true) const {
    const CoreAccounts before = {
        .wall_s = 10, .busy_s = 7, .stolen_s = 1, .own_s = 3, .waited_s = 2};
    CoreAccounts after = {.wall_s = 11,
                          .busy_s = before.busy_s + others_s + own_s,
                          .stolen_s = before.stolen_s + stolen_s,
                          .own_s = before.own_s + own_s,
                          .waited_s = *before.waited_s + waited_s};
    if (!knows_waits) after.waited_s.reset();
    return ShareTaken(before, after, 2);
  }
};

TEST(ShareTaken, IsWhatOthersRan) {
  EXPECT_NEAR((Second{.others_s = 0.5, .own_s = 1.5, .waited_s = 0.5}.Share()), 0.25, 1e-12);
  EXPECT_NEAR((Second{.others_s = 0.5, .own_s = 1.5}.Share(false)), 0.25, 1e-12);
}

TEST(ShareTaken, IsNothingBesideIdleCores) {
  EXPECT_NEAR((Second{.others_s = 0.9, .own_s = 0.9, .waited_s = 0}.Share()), 0, 1e-12);
}

TEST(ShareTaken, IsNothingWhereRanksWaitForEachOther) {
  EXPECT_NEAR((Second{.own_s = 2, .waited_s = 2}.Share()), 0, 1e-12);
}

TEST(ShareTaken, CountsWhatWasStolen) {
  EXPECT_NEAR((Second{.own_s = 1.6, .stolen_s = 0.4}.Share()), 0.2, 1e-12);
}

TEST(ShareTaken, StaysWithinBoundsWhenThreadsEnd) {
  EXPECT_EQ((Second{.others_s = 0.5, .own_s = 1.5, .waited_s = -1}.Share()), 0);
  EXPECT_EQ((Second{.others_s = 9, .waited_s = 9}.Share()), 1);
}

TEST(ShareInTheWay, LeavesOthersTheCoresThatAreNotWanted) {
  const CoreAccounts before;
  const CoreAccounts after = {.wall_s = 1, .busy_s = 2.5};
  EXPECT_NEAR(ShareInTheWay(before, after, 4, 4), 2.5 / 4, 1e-12);
  EXPECT_NEAR(ShareInTheWay(before, after, 4, 2), 0.5 / 4, 1e-12);
  EXPECT_EQ(ShareInTheWay(before, after, 4, 1), 0);
  EXPECT_NEAR(ShareInTheWay(before, after, 4, 8), 2.5 / 4, 1e-12);
}

TEST(OtherWork, ReadsThisMachine) {
  OtherWork other_work;
  double sum = 0;
  for (int i = 0; i < 10'000'000; ++i) sum += 1.0 / (1 + i);
  EXPECT_GT(sum, 0);
  const double share = other_work.Share();
  EXPECT_GE(share, 0);
  EXPECT_LE(share, 1);
}

}  // namespace
}  // namespace trimtab

#include "engine/device/cuda/watched_wait.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace trimtab {
namespace {

class CountingWatch final : public WaitWatch {
 public:
  void Begin() override { ++begun; }
  void End() override { ++ended; }
  void Check() override {
    ++checks;
    if (checks == fails_at) throw std::runtime_error("rank 1 failed");
  }

  int begun = 0;
  int ended = 0;
  int checks = 0;
  int fails_at = -1;
};

TEST(WatchedWait, ShortWaitsDisturbNobody) {
  CountingWatch watch;
  int polls = 0;
  WatchedWait([&] { return ++polls == 3; }, watch);
  EXPECT_EQ(polls, 3);
  EXPECT_EQ(watch.begun, 0);
  EXPECT_EQ(watch.checks, 0);
}

TEST(WatchedWait, LongWaitsAreWatchedToTheirEnd) {
  CountingWatch watch;
  WatchedWait([&] { return watch.checks == 5; }, watch);
  EXPECT_EQ(watch.begun, 1);
  EXPECT_EQ(watch.ended, 1);
}

// A stream that holds a stuck collective is never done.
TEST(WatchedWait, AWaitForNothingEndsWithTheReason) {
  CountingWatch watch;
  watch.fails_at = 4;
  EXPECT_THROW(WatchedWait([] { return false; }, watch), std::runtime_error);
  EXPECT_EQ(watch.checks, 4);
  EXPECT_EQ(watch.ended, 1);
}

}  // namespace
}  // namespace trimtab

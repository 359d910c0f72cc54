#include "profiler/quiet_wait.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

constexpr auto kNever = [] { return false; };

/// A machine on which others run for `busy` windows from now.
struct FakeMachine {
  int busy = 0;
  int windows = 0;

  QuietWait Wait() {
    return QuietWait([this](double) {
      ++windows;
      return busy-- > 0 ? 0.5 : 0.0;
    });
  }
};

TEST(QuietWait, WaitsUntilItIsQuiet) {
  FakeMachine machine{.busy = 5};
  machine.Wait().Wait(kNever);
  EXPECT_EQ(machine.windows, 6);
}

TEST(QuietWait, LosesPatienceAndFindsItAgain) {
  FakeMachine machine{.busy = 1'000'000};
  QuietWait wait = machine.Wait();
  const auto windows_of = [&] {
    machine.windows = 0;
    wait.Wait(kNever);
    return machine.windows;
  };
  EXPECT_EQ(windows_of(), 48);  // 12 s
  EXPECT_EQ(windows_of(), 24);
  EXPECT_EQ(windows_of(), 12);
  for (int i = 0; i < 10; ++i) windows_of();
  EXPECT_EQ(windows_of(), 2) << "never none: quiet must be seen when it comes";
  machine.busy = 1;
  EXPECT_EQ(windows_of(), 2);
  EXPECT_EQ(wait.patience_s(), 1);
}

TEST(QuietWait, EndsWhenToldTo) {
  FakeMachine machine{.busy = 1'000'000};
  QuietWait wait = machine.Wait();
  wait.Wait([&] { return machine.windows == 3; });
  EXPECT_EQ(machine.windows, 3);
  EXPECT_EQ(wait.patience_s(), QuietWait::kMostPatienceSeconds) << "nothing was in vain";
}

}  // namespace
}  // namespace trimtab

// Monitors of a few ranks in one process. mpi_test has those of processes that go away.
#include "engine/comm/mpi/rank_monitor.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace trimtab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct World {
  explicit World(int size, seconds wait = seconds(1800)) {
    const MonitorLimits limits = {.wait = wait, .silence = seconds(10)};
    Socket listener = ListenForRanks(/*all_here=*/true, address);
    for (int rank = 0; rank < size; ++rank) {
      Socket socket = rank == 0 ? std::move(listener) : ConnectToFirstRank(address, rank);
      monitors.push_back(std::make_unique<RankMonitor>(
          limits, MonitorSetup{rank, size, rank, address, std::move(socket)}));
    }
  }

  /// Whether a monitor knows of a failure within `patience`.
  static bool Fails(const RankMonitor& monitor, milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!monitor.failure() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return monitor.failure().has_value();
  }

  RankAddress address;
  std::vector<std::unique_ptr<RankMonitor>> monitors;  // by rank
};

TEST(RankMonitor, WhoSaysFarewellIsNotLost) {
  World world(3);
  std::this_thread::sleep_for(milliseconds(300));
  world.monitors[2]->Farewell();
  world.monitors[2].reset();
  EXPECT_FALSE(World::Fails(*world.monitors[0], milliseconds(1500)));
  world.monitors[0]->Farewell();
  world.monitors[0].reset();
  EXPECT_FALSE(World::Fails(*world.monitors[1], milliseconds(500)));
}

TEST(RankMonitor, WhoLeavesWithoutAWordIsLostToAll) {
  World world(3);
  std::this_thread::sleep_for(milliseconds(300));
  world.monitors[1].reset();
  for (const int rank : {0, 2}) {
    const RankMonitor& monitor = *world.monitors[static_cast<size_t>(rank)];
    ASSERT_TRUE(World::Fails(monitor, seconds(3)));
    EXPECT_TRUE(monitor.lost());
    EXPECT_EQ(monitor.failure()->rank, 1);
    EXPECT_EQ(monitor.failure()->message, "rank 1 has died: its process ended without a word");
  }
}

TEST(RankMonitor, LossOfTheFirstRankIsSeenByTheOthers) {
  World world(3);
  std::this_thread::sleep_for(milliseconds(300));
  world.monitors[0].reset();
  for (const int rank : {1, 2}) {
    const RankMonitor& monitor = *world.monitors[static_cast<size_t>(rank)];
    ASSERT_TRUE(World::Fails(monitor, seconds(3)));
    EXPECT_EQ(monitor.failure()->rank, 0);
  }
}

TEST(RankMonitor, OneWhoDoesNotKnowTheTokenIsNobody) {
  World world(2);
  {
    Socket stranger = ConnectToFirstRank(world.address, 1);
    MonitorLink link(std::move(stranger));
    MonitorFrame frame = {.kind = MonitorFrame::kHello, .rank = 1};
    frame.SetText("let me in");
    link.Send(frame);
    link.Send({.kind = MonitorFrame::kLost, .rank = 1});
    std::this_thread::sleep_for(milliseconds(300));
  }
  EXPECT_FALSE(World::Fails(*world.monitors[0], milliseconds(500)));
  for (auto& monitor : world.monitors) monitor->Farewell();
}

TEST(RankMonitor, NamesWhoCallsNothingWhileAnotherWaits) {
  World world(3, /*wait=*/seconds(2));
  world.monitors[0]->BeginWait("calls recv of 8 fp32 from rank 1 in the pp group");
  world.monitors[1]->BeginWait("calls recv of 8 fp32 from rank 2 in the pp group");
  for (const auto& monitor : world.monitors) {
    ASSERT_TRUE(World::Fails(*monitor, seconds(8)));
    EXPECT_FALSE(monitor->lost());
    const std::string message = monitor->failure()->message;
    EXPECT_TRUE(message.starts_with("rank 2 makes no progress: it has called nothing for "))
        << message;
    EXPECT_TRUE(
        message.ends_with("and rank 0 calls recv of 8 fp32 from rank 1 in the pp group, for "
                          "longer than 2 s ($TRIMTAB_COMM_TIMEOUT_S)"))
        << message;
  }
  for (auto& monitor : world.monitors) monitor->Farewell();
}

TEST(RankMonitor, ListsTheWaitsOfADeadlock) {
  World world(2, /*wait=*/seconds(1));
  world.monitors[0]->BeginWait("calls barrier in the tp group");
  std::this_thread::sleep_for(milliseconds(900));  // its last beat is from before
  world.monitors[1]->BeginWait("calls barrier in the dp group");
  ASSERT_TRUE(World::Fails(*world.monitors[0], seconds(8)));
  EXPECT_EQ(
      world.monitors[0]->failure()->message,
      "no progress for longer than 1 s ($TRIMTAB_COMM_TIMEOUT_S): rank 0 calls barrier in the "
      "tp group, rank 1 calls barrier in the dp group");
  for (auto& monitor : world.monitors) monitor->Farewell();
}

TEST(RankMonitor, WaitsMayBeUnlimited) {
  World world(2, /*wait=*/seconds(1));
  world.monitors[1]->set_unlimited(true);
  world.monitors[1]->BeginWait("calls broadcast in the world group");
  EXPECT_FALSE(World::Fails(*world.monitors[0], milliseconds(3500)));
  world.monitors[1]->set_unlimited(false);
  EXPECT_TRUE(World::Fails(*world.monitors[0], seconds(4)));
  for (auto& monitor : world.monitors) monitor->Farewell();
}

}  // namespace
}  // namespace trimtab

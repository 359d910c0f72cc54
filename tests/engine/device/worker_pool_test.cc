#include "engine/device/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace trimtab {
namespace {

/// Items that workers take one by one, and who was there.
struct Items {
  std::atomic<int> next = 0;
  std::atomic<int> done = 0;
  std::atomic<int> workers = 0;
  std::atomic<int> inside = 0;  // workers just now

  /// `count` of them.
  WorkerTask Task(int count) {
    most = count;
    return {[](void* context, int) {
              auto& items = *static_cast<Items*>(context);
              ++items.workers;
              ++items.inside;
              while (items.next++ < items.most) ++items.done;
              --items.inside;
            },
            this};
  }
  int most = 0;
};

TEST(WorkerPoolTest, AWorkerThatDoesNotComeHoldsNobodyUp) {
  WorkerPool worker_pool(2);
  for (int loop = 0; loop < 3; ++loop) {
    Items items;
    worker_pool.Run(2, items.Task(5));
    EXPECT_EQ(items.done.load(), 5);
    EXPECT_EQ(items.workers.load(), 1);
  }
  // Loops that are over are not begun any more: their items are gone.
  std::thread late([&] { worker_pool.Follow(1); });
  for (int loop = 0; loop < 1000; ++loop) {
    Items items;
    worker_pool.Run(2, items.Task(20));
    EXPECT_EQ(items.done.load(), 20);
  }
  worker_pool.Dismiss();
  late.join();
}

// A loop is left by all who have begun it before the next one begins.
TEST(WorkerPoolTest, NobodyIsInALoopThatHasEnded) {
  WorkerPool worker_pool(4);
  std::vector<std::thread> followers;
  for (int worker = 1; worker < 4; ++worker) {
    followers.emplace_back([&worker_pool, worker] { worker_pool.Follow(worker); });
  }
  for (int loop = 0; loop < 20'000; ++loop) {
    Items items;
    worker_pool.Run(3, items.Task(loop % 7));
    EXPECT_EQ(items.done.load(), loop % 7);
    EXPECT_LE(items.workers.load(), 3);
    EXPECT_EQ(items.inside.load(), 0);
  }
  worker_pool.Dismiss();
  for (std::thread& each : followers) each.join();
}

}  // namespace
}  // namespace trimtab

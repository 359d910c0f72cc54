#include "engine/device/cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace trimtab {
namespace {

TEST(ParallelForTest, CoversEveryElementOnceInGrains) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t count : {0, 1, 7, 64, 65, 1000}) {
      for (const int64_t grain : {1, 16, 2000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        ParallelFor(threads, count, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          EXPECT_TRUE(end % grain == 0 || end == count);
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ParallelForTest, StaysOnTheCallersThreadWhenThereIsOneGrain) {
  const auto caller = std::this_thread::get_id();
  ParallelFor(8, 100, 100,
              [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  ParallelFor(1, 1000, 1, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

/// Runs `loop(threads, count, task)` with many numbers of both: each item once, in a range of
/// workers.
template <typename Loop>
void ExpectEachItemOnce(Loop&& loop) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 3, 200}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
      loop(threads, count, [&](int64_t item, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        // A worker does one item at a time: its scratch is its own.
        EXPECT_EQ(busy[static_cast<size_t>(worker)].fetch_add(1), 0);
        ++hits[static_cast<size_t>(item)];
        busy[static_cast<size_t>(worker)].fetch_sub(1);
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ParallelForEachTest, GivesEveryItemToOneWorkerInRange) {
  ExpectEachItemOnce(
      [](int threads, int64_t count, const auto& task) { ParallelForEach(threads, count, task); });
}

TEST(ParallelForNeighboursTest, GivesEveryItemToOneWorkerInRange) {
  ExpectEachItemOnce([](int threads, int64_t count, const auto& task) {
    ParallelForNeighbours(threads, count, task);
  });
}

// A worker goes through its share from the front; of another's it takes the last ones.
TEST(ParallelForNeighboursTest, EachWorkerGoesForwardThroughItsOwnShare) {
  constexpr int kThreads = 3;
  constexpr int64_t kCount = 300;
  std::vector<std::vector<int64_t>> done(kThreads);
  ParallelForNeighbours(kThreads, kCount, [&](int64_t item, int worker) {
    done[static_cast<size_t>(worker)].push_back(item);
  });
  for (int64_t worker = 0; worker < kThreads; ++worker) {
    const int64_t begin = kCount * worker / kThreads;
    const int64_t end = kCount * (worker + 1) / kThreads;
    int64_t expected = begin;
    for (const int64_t item : done[static_cast<size_t>(worker)]) {
      if (item < begin || item >= end) break;
      EXPECT_EQ(item, expected++);
    }
  }
}

TEST(WithWorkerPoolTest, LoopsDoTheSameWithWorkersAtHand) {
  for (const int at_hand : {1, 2, 3}) {
    WithWorkerPool(at_hand, [] {
      ExpectEachItemOnce([](int threads, int64_t count, const auto& task) {
        ParallelForEach(threads, count, task);
      });
      ExpectEachItemOnce([](int threads, int64_t count, const auto& task) {
        ParallelForNeighbours(threads, count, task);
      });
      std::vector<std::atomic<int>> hits(1000);
      ParallelFor(5, 1000, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    });
  }
}

// Each of two items waits until the other one has begun.
TEST(WithWorkerPoolTest, WorkersRunAtTheSameTimeEvenAfterTheyHaveSlept) {
  WithWorkerPool(2, [] {
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::atomic<int> begun = 0;
      ParallelForEach(2, 2, [&](int64_t, int) {
        ++begun;
        while (begun < 2) std::this_thread::yield();
      });
      EXPECT_EQ(begun.load(), 2);
    }
  });
}

TEST(WithWorkerPoolTest, LoopsWithinLoopsAndCrewsWithinCrewsRun) {
  std::atomic<int64_t> total = 0;
  WithWorkerPool(2, [&] {
    WithWorkerPool(2, [&] {
      ParallelForEach(2, 10, [&](int64_t, int) {
        ParallelFor(2, 100, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
      });
    });
    ParallelFor(2, 100, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
  });
  EXPECT_EQ(total.load(), 1100);
}

TEST(WithWorkerPoolTest, ThrowsWhatItsBodyThrowsAndLetsTheWorkersGo) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_THROW(WithWorkerPool(3, [] { throw std::runtime_error("of the body"); }),
                 std::runtime_error);
  }
  std::atomic<int64_t> total = 0;
  ParallelFor(3, 100, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
  EXPECT_EQ(total.load(), 100);
}

TEST(ParallelForTest, RanksHaveTheirOwnWorkers) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total = 0;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        ParallelFor(1 + rank % 3, 100, 1,
                    [&](int64_t begin, int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(total.load(), 6 * 20 * 100);
}

}  // namespace
}  // namespace trimtab

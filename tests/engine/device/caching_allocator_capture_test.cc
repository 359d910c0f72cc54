// The caching allocator while steps are captured, over a simulated GPU.
#include "engine/device/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tests/engine/device/simulated_memory.h"

namespace trimtab {
namespace {

TEST(CachingAllocator, MemoryOfACaptureIsNobodyElsesUntilItIsReleased) {
  FakeSource source(8 * kGiB);
  CachingAllocator allocator(source);
  Ledger ledger(allocator, source);
  const CachingAllocator::PoolId pool = allocator.NewPool();
  allocator.OpenPool(pool);
  void* temporary = ledger.Allocate(30 * kMiB);
  ledger.Free(temporary);
  EXPECT_EQ(ledger.Allocate(30 * kMiB), temporary);  // reused within the capture
  allocator.ClosePool();
  ledger.Free(temporary);

  std::vector<void*> others;
  for (int i = 0; i < 20; ++i) others.push_back(ledger.Allocate(30 * kMiB));
  EXPECT_EQ(std::count(others.begin(), others.end(), temporary), 0);
  allocator.Trim();  // does not take it away either
  EXPECT_TRUE(source.Holds(reinterpret_cast<uintptr_t>(temporary), 30 * kMiB));

  allocator.ReleasePool(pool);
  for (void* other : others) ledger.Free(other);
  allocator.Trim();
  EXPECT_EQ(source.taken(), 0);
}

TEST(CachingAllocator, ACaptureThatLacksMemoryGetsToItsEnd) {
  FakeSource source(256 * kMiB);
  CachingAllocator allocator(source);
  void* weights = allocator.Allocate(192 * kMiB);
  const CachingAllocator::PoolId pool = allocator.NewPool();
  allocator.OpenPool(pool);
  void* first = allocator.Allocate(48 * kMiB);
  EXPECT_EQ(allocator.lacked_bytes(), 0);
  void* second = allocator.Allocate(100 * kMiB);
  void* third = allocator.Allocate(512);
  void* fourth = allocator.Allocate(60 * kMiB);
  EXPECT_EQ(allocator.lacked_bytes(), 160 * kMiB);
  EXPECT_EQ(std::set<void*>({weights, first, second, third, fourth}).size(), 5u);
  for (void* lacked : {second, fourth}) {
    EXPECT_TRUE(source.Holds(reinterpret_cast<uintptr_t>(lacked), 1));
  }
  for (void* data : {second, first, fourth, third}) allocator.Free(data);
  EXPECT_EQ(allocator.in_use_bytes(pool), 0);
  allocator.ClosePool();
  allocator.ReleasePool(pool);

  // What the pool took serves the run that goes on without it.
  EXPECT_THROW(allocator.Allocate(100 * kMiB), OutOfMemoryError);
  void* uncaptured = allocator.Allocate(60 * kMiB);
  allocator.Free(uncaptured);
  allocator.OpenPool(allocator.NewPool());
  EXPECT_EQ(allocator.lacked_bytes(), 0);
  allocator.ClosePool();
  allocator.Free(weights);
}

TEST(CachingAllocator, CapturesThatShareAPoolShareItsMemory) {
  FakeSource source(8 * kGiB);
  CachingAllocator allocator(source);
  const CachingAllocator::PoolId pool = allocator.NewPool();
  for (int capture = 0; capture < 5; ++capture) {
    allocator.OpenPool(pool);
    void* activations = allocator.Allocate(900 * kMiB);
    void* workspace = allocator.Allocate(3 * kMiB);
    EXPECT_GE(allocator.in_use_bytes(pool), 903 * kMiB);
    allocator.Free(activations);
    allocator.Free(workspace);
    allocator.ClosePool();
    EXPECT_EQ(allocator.in_use_bytes(pool), 0);
    EXPECT_LT(source.taken(), 1000 * kMiB);
  }
  allocator.ReleasePool(pool);
  allocator.Trim();
  EXPECT_EQ(source.taken(), 0);
}

TEST(CachingAllocator, WhatACaptureFreesButDidNotTakeIsKeptForItToo) {
  FakeSource source(8 * kGiB);
  CachingAllocator allocator(source);
  void* before = allocator.Allocate(10 * kMiB);
  const CachingAllocator::PoolId pool = allocator.NewPool();
  allocator.OpenPool(pool);
  allocator.Free(before);
  allocator.ClosePool();
  EXPECT_NE(allocator.Allocate(10 * kMiB), before);
  EXPECT_EQ(allocator.in_use_bytes(), 20 * kMiB);
  allocator.ReleasePool(pool);
  EXPECT_EQ(allocator.in_use_bytes(), 10 * kMiB);
  EXPECT_EQ(allocator.Allocate(10 * kMiB), before);
}

TEST(CachingAllocator, WhatOutlivesItsCaptureIsFreeForAllOnceItIsFreed) {
  FakeSource source(8 * kGiB);
  CachingAllocator allocator(source);
  const CachingAllocator::PoolId pool = allocator.NewPool();
  allocator.OpenPool(pool);
  void* result = allocator.Allocate(10 * kMiB);
  allocator.ClosePool();
  allocator.ReleasePool(pool);
  EXPECT_NE(allocator.Allocate(10 * kMiB), result);
  allocator.Free(result);
  EXPECT_EQ(allocator.Allocate(10 * kMiB), result);
}

TEST(CachingAllocator, GivesNothingBackToTheSourceDuringACapture) {
  FakeSource source(1000 * kMiB);
  CachingAllocator allocator(source);
  allocator.Free(allocator.Allocate(800 * kMiB));
  const CachingAllocator::PoolId pool = allocator.NewPool();
  allocator.OpenPool(pool);
  EXPECT_THROW(allocator.Allocate(500 * kMiB), OutOfMemoryError);
  EXPECT_EQ(source.taken(), 800 * kMiB);
  allocator.ClosePool();
  allocator.ReleasePool(pool);
  EXPECT_NE(allocator.Allocate(500 * kMiB), nullptr);
}

TEST(CachingAllocator, RandomCapturesKeepToThemselves) {
  FakeSource source(64 * kGiB);
  CachingAllocator allocator(source);
  Ledger ledger(allocator, source);
  std::mt19937 random(9);
  std::vector<void*> blocks;
  std::map<CachingAllocator::PoolId, std::vector<std::pair<uintptr_t, int64_t>>> taken;
  for (int round = 0; round < 40; ++round) {
    const CachingAllocator::PoolId pool = allocator.NewPool();
    allocator.OpenPool(pool);
    for (int i = 0; i < 20; ++i) {
      const int64_t size = RandomSize(random) / 16 + 1;
      void* data = ledger.Allocate(size);
      taken[pool].emplace_back(reinterpret_cast<uintptr_t>(data), size);
      if (i % 2 == 0) {
        ledger.Free(data);
      } else {
        blocks.push_back(data);
      }
    }
    allocator.ClosePool();
    for (int i = 0; i < 50 && !blocks.empty(); ++i) {
      const size_t which = random() % blocks.size();
      ledger.Free(blocks[which]);
      blocks[which] = blocks.back();
      blocks.pop_back();
      const int64_t size = RandomSize(random) / 16 + 1;
      void* data = ledger.Allocate(size);
      const auto begin = reinterpret_cast<uintptr_t>(data);
      for (const auto& [other, ranges] : taken) {
        for (const auto& [address, bytes] : ranges) {
          ASSERT_TRUE(begin + static_cast<uintptr_t>(size) <= address ||
                      address + static_cast<uintptr_t>(bytes) <= begin)
              << "memory of capture " << other << " was handed out";
        }
      }
      blocks.push_back(data);
    }
    if (taken.size() > 5) {
      const auto oldest = taken.begin();
      allocator.ReleasePool(oldest->first);
      taken.erase(oldest);
    }
  }
  for (void* block : blocks) ledger.Free(block);
  for (const auto& [pool, ranges] : taken) allocator.ReleasePool(pool);
  EXPECT_EQ(allocator.in_use_bytes(), 0);
  allocator.Trim();
  EXPECT_EQ(source.taken(), 0);
}

}  // namespace
}  // namespace trimtab

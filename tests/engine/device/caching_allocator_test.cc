// The caching allocator over a simulated GPU.
#include "engine/device/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tests/engine/device/simulated_memory.h"

namespace trimtab {
namespace {

TEST(CachingAllocator, RandomSequencesNeverOverlapAndReturnEverything) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    FakeSource source(64 * kGiB);
    {
      CachingAllocator allocator(source);
      Ledger ledger(allocator, source);
      std::mt19937 random(seed);
      std::vector<void*> blocks;
      for (int step = 0; step < 4000; ++step) {
        if (blocks.empty() || (random() % 100 < 55 && ledger.bytes() < 8 * kGiB)) {
          blocks.push_back(ledger.Allocate(RandomSize(random)));
        } else {
          const size_t which = random() % blocks.size();
          ledger.Free(blocks[which]);
          blocks[which] = blocks.back();
          blocks.pop_back();
        }
        ASSERT_EQ(allocator.reserved_bytes(), source.taken());
        ASSERT_GE(allocator.in_use_bytes(), ledger.bytes());
      }
      for (void* block : blocks) ledger.Free(block);
      EXPECT_EQ(allocator.in_use_bytes(), 0);
      allocator.Trim();
      EXPECT_EQ(allocator.reserved_bytes(), 0) << "free neighbours were not joined";
      EXPECT_EQ(allocator.segment_count(), 0);
    }
    EXPECT_EQ(source.taken(), 0);
  }
}

TEST(CachingAllocator, KeepsLittleMoreThanTheMostThatWasInUse) {
  for (const unsigned seed : {5u, 6u, 7u}) {
    FakeSource source(256 * kGiB);
    CachingAllocator allocator(source);
    Ledger ledger(allocator, source);
    std::mt19937 random(seed);
    std::vector<void*> blocks;
    int64_t peak = 0;
    for (int step = 0; step < 6000; ++step) {
      if (blocks.empty() || (random() % 2 == 0 && ledger.bytes() < 16 * kGiB)) {
        blocks.push_back(ledger.Allocate(RandomSize(random)));
      } else {
        const size_t which = random() % blocks.size();
        ledger.Free(blocks[which]);
        blocks[which] = blocks.back();
        blocks.pop_back();
      }
      peak = std::max(peak, ledger.bytes());
    }
    EXPECT_LT(source.most_taken(), 2 * peak + kGiB);
  }
}

// The first steps differ: they find other blocks free.
TEST(CachingAllocator, ARepeatedStepSoonTakesNothingMoreFromTheSource) {
  FakeSource source(64 * kGiB);
  CachingAllocator allocator(source);
  std::mt19937 random(8);
  std::vector<int64_t> sizes(300);
  for (int64_t& size : sizes) size = RandomSize(random);
  const auto step = [&] {
    std::vector<void*> kept;
    for (size_t i = 0; i < sizes.size(); ++i) {
      void* block = allocator.Allocate(sizes[i]);
      if (i % 3 == 0) {
        kept.push_back(block);
      } else {
        allocator.Free(block);
      }
    }
    while (!kept.empty()) {
      allocator.Free(kept.back());
      kept.pop_back();
    }
  };
  for (int i = 0; i < 3; ++i) step();
  const int calls = source.calls();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(source.calls(), calls);
}

TEST(CachingAllocator, AFreedBlockIsTheNextOneOfItsSize) {
  FakeSource source(kGiB);
  CachingAllocator allocator(source);
  for (const int64_t size : {int64_t{100}, 900 * kKiB, 5 * kMiB, 200 * kMiB}) {
    void* first = allocator.Allocate(size);
    allocator.Free(first);
    EXPECT_EQ(allocator.Allocate(size), first) << size;
  }
}

TEST(CachingAllocator, SparesALargeFreeBlockWhileThereIsOtherMemory) {
  FakeSource source(4 * kGiB);
  CachingAllocator allocator(source);
  void* large = allocator.Allocate(2 * kGiB);
  allocator.Free(large);
  void* medium = allocator.Allocate(20 * kMiB);
  EXPECT_EQ(source.calls(), 2);  // a segment of its own
  EXPECT_EQ(allocator.Allocate(2 * kGiB), large);
  allocator.Free(medium);
}

TEST(CachingAllocator, CutsTheLargeBlockWhenThereIsNoOther) {
  FakeSource source(2 * kGiB);
  CachingAllocator allocator(source);
  void* large = allocator.Allocate(2 * kGiB);
  allocator.Free(large);
  EXPECT_EQ(allocator.Allocate(20 * kMiB), large);
  EXPECT_NE(allocator.Allocate(100), nullptr);  // small, and no segment for small ones to be had
  // What the source refused is not asked for again and again.
  const int calls = source.calls();
  allocator.Free(allocator.Allocate(100 * kMiB));
  EXPECT_EQ(source.calls(), calls);
}

TEST(CachingAllocator, GivesCachedSegmentsBackBeforeItGivesUp) {
  FakeSource source(1000 * kMiB);
  CachingAllocator allocator(source);
  std::vector<void*> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(allocator.Allocate(100 * kMiB));
  for (void* block : blocks) allocator.Free(block);
  EXPECT_NE(allocator.Allocate(950 * kMiB), nullptr);
  EXPECT_EQ(allocator.segment_count(), 1);
}

// Messages that a failure left under way may still come.
TEST(CachingAllocator, WhatIsInUseOutlivesIt) {
  FakeSource source(int64_t{1} << 32);
  {
    CachingAllocator allocator(source);
    void* const kept = allocator.Allocate(3 * kMiB);
    void* const neighbour = allocator.Allocate(5 * kMiB);
    void* const apart = allocator.Allocate(2 * CachingAllocator::kLargeSegment);
    allocator.Free(neighbour);
    allocator.Free(apart);
    EXPECT_GT(allocator.reserved_bytes(), CachingAllocator::kLargeSegment);
    EXPECT_TRUE(source.Holds(reinterpret_cast<uintptr_t>(kept), 3 * kMiB));
  }
  EXPECT_EQ(source.taken(), CachingAllocator::kLargeSegment);
}

TEST(CachingAllocator, SaysWhatIsInUseAndWhatIsCachedWhenItGivesUp) {
  FakeSource source(1000 * kMiB);
  CachingAllocator allocator(source);
  void* used = allocator.Allocate(600 * kMiB);
  try {
    allocator.Allocate(500 * kMiB);
    FAIL() << "there was not that much";
  } catch (const OutOfMemoryError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("500 MiB"), std::string::npos) << message;
    EXPECT_NE(message.find("600 MiB in use"), std::string::npos) << message;
    EXPECT_NE(message.find("cached"), std::string::npos) << message;
  }
  EXPECT_EQ(allocator.in_use_bytes(), 600 * kMiB);
  allocator.Free(used);
  EXPECT_NE(allocator.Allocate(500 * kMiB), nullptr);  // and carries on
}

}  // namespace
}  // namespace trimtab

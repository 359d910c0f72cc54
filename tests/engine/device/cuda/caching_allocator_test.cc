// The caching allocator over a simulated GPU: its memory is an address range, nothing is written.
#include "engine/device/cuda/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

/// Addresses never come back, so that what was freed and used again is always noticed.
class FakeSource final : public MemorySource {
 public:
  explicit FakeSource(int64_t capacity) : capacity_(capacity) {}

  void* Allocate(int64_t bytes) override {
    ++calls_;
    if (taken_ + bytes > capacity_) return nullptr;
    taken_ += bytes;
    most_taken_ = std::max(most_taken_, taken_);
    const uintptr_t address = next_;
    next_ += static_cast<uintptr_t>(RoundUp(bytes, 4 * kMiB));
    segments_[address] = bytes;
    return reinterpret_cast<void*>(address);
  }
  void Free(void* data) override {
    const auto found = segments_.find(reinterpret_cast<uintptr_t>(data));
    ASSERT_NE(found, segments_.end()) << "freed what was never allocated";
    taken_ -= found->second;
    segments_.erase(found);
  }

  int64_t taken() const { return taken_; }
  int64_t most_taken() const { return most_taken_; }
  int calls() const { return calls_; }
  bool Holds(uintptr_t address, int64_t bytes) const {
    const auto above = segments_.upper_bound(address);
    if (above == segments_.begin()) return false;
    const auto& [begin, length] = *std::prev(above);
    return address + static_cast<uintptr_t>(bytes) <= begin + static_cast<uintptr_t>(length);
  }

 private:
  int64_t capacity_;
  int64_t taken_ = 0;
  int64_t most_taken_ = 0;
  int calls_ = 0;
  uintptr_t next_ = uintptr_t{1} << 40;
  std::map<uintptr_t, int64_t> segments_;
};

/// What is in use, checked for overlaps.
class Ledger {
 public:
  Ledger(CachingAllocator& allocator, const FakeSource& source)
      : allocator_(allocator), source_(source) {}

  void* Allocate(int64_t bytes) {
    void* data = allocator_.Allocate(bytes);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    EXPECT_EQ(begin % CachingAllocator::kAlignment, 0u);
    EXPECT_TRUE(source_.Holds(begin, bytes)) << bytes << " bytes outside of every segment";
    const auto after = in_use_.lower_bound(begin);
    if (after != in_use_.end()) {
      EXPECT_LE(begin + static_cast<uintptr_t>(bytes), after->first) << "overlap";
    }
    if (after != in_use_.begin()) {
      const auto before = std::prev(after);
      EXPECT_LE(before->first + static_cast<uintptr_t>(before->second), begin) << "overlap";
    }
    in_use_[begin] = bytes;
    return data;
  }
  void Free(void* data) {
    in_use_.erase(reinterpret_cast<uintptr_t>(data));
    allocator_.Free(data);
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [address, bytes] : in_use_) sum += bytes;
    return sum;
  }

 private:
  CachingAllocator& allocator_;
  const FakeSource& source_;
  std::map<uintptr_t, int64_t> in_use_;
};

int64_t RandomSize(std::mt19937& random) {
  // From one byte to half a gigabyte, each order of magnitude as often.
  const double exponent = std::uniform_real_distribution<double>(0, 29)(random);
  return static_cast<int64_t>(std::exp2(exponent));
}

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

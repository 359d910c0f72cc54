// A simulated GPU's memory for tests of what hands it out: an address range, nothing is written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>

#include "engine/base/units.h"
#include "engine/device/caching_allocator.h"

namespace trimtab {

/// Addresses never come back, so that what was freed and used again is always noticed.
class FakeSource final : public MemorySource {
 public:
  explicit FakeSource(int64_t capacity) : capacity_(capacity) {}

  std::string_view name() const override { return "GPU"; }

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

/// Bytes to ask for.
inline int64_t RandomSize(std::mt19937& random) {
  // From one byte to half a gigabyte, each order of magnitude as often.
  const double exponent = std::uniform_real_distribution<double>(0, 29)(random);
  return static_cast<int64_t>(std::exp2(exponent));
}

}  // namespace trimtab

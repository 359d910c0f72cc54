// The cpu device: host memory, everything synchronous.
//
// Freed blocks are kept for the next allocation of the same size: a training step asks for the same
// sizes over and over, and fresh pages from the kernel cost more than many of the ops that use
// them. What is kept and in use together never exceeds the device's own peak, but for a MiB, so
// that tiny models need no malloc either.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/device/device.h"

namespace trimtab {
namespace {

constexpr int64_t kAlignment = 64;  // one cache line, one AVX-512 vector
constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kAlwaysKept = kMiB;

int64_t RoundToPages(int64_t bytes) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  return RoundUp(bytes, page);
}

/// Blocks that are too small for huge pages of their own, side by side in regions that have them.
/// Weights of a few bits are of this size, and read front to back: on huge pages that takes up to a
/// tenth less time, for fewer page-table walks and because caches foresee no further than a page.
class HugeRegions {
 public:
  HugeRegions() = default;
  ~HugeRegions() {
    if (taken_ > 0) return;  // after a failure, somebody may still write there
    for (const Region& each : regions_) munmap(each.mapped, static_cast<size_t>(each.bytes));
  }
  HugeRegions(const HugeRegions&) = delete;
  HugeRegions& operator=(const HugeRegions&) = delete;

  /// Whether blocks of so many bytes belong here.
  static bool Fits(int64_t bytes) { return bytes >= kHugePage / 8 && bytes < 2 * kHugePage; }

  /// A block of `bytes`, which fit; nullptr when the machine has no more.
  void* Take(int64_t bytes) {
    const int64_t size = RoundToPages(bytes);
    std::vector<void*>& returned = returned_[size];
    if (returned.empty() && left_ < size && !AddRegion()) return nullptr;
    ++taken_;
    if (!returned.empty()) {
      void* block = returned.back();
      returned.pop_back();
      return block;
    }
    left_ -= size;
    return std::exchange(next_, next_ + size);
  }

  /// Gives the memory of a block back to the system; its addresses wait for a block of its size.
  void Return(void* block, int64_t bytes) {
    const int64_t size = RoundToPages(bytes);
    madvise(block, static_cast<size_t>(size), MADV_DONTNEED);
    returned_[size].push_back(block);
    --taken_;
  }

 private:
  struct Region {
    void* mapped;
    int64_t bytes;
  };

  // Addresses, of which only those that are written take memory.
  bool AddRegion() {
    constexpr int64_t kBytes = 32 * kHugePage;
    const Region region = {mmap(nullptr, kBytes + kHugePage, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
                           kBytes + kHugePage};
    if (region.mapped == MAP_FAILED) return false;
    regions_.push_back(region);
    const auto address = static_cast<int64_t>(reinterpret_cast<intptr_t>(region.mapped));
    next_ = static_cast<char*>(region.mapped) + (RoundUp(address, kHugePage) - address);
    left_ = kBytes;
    madvise(next_, kBytes, MADV_HUGEPAGE);
    return true;
  }

  std::vector<Region> regions_;
  char* next_ = nullptr;  // in the last region
  int64_t left_ = 0;
  int64_t taken_ = 0;                               // blocks
  std::map<int64_t, std::vector<void*>> returned_;  // by size
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : Device(DeviceKind::kCpu, {DeviceKind::kCpu, threads}) {}
  ~CpuDevice() override { Trim(0); }

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device_data, host, static_cast<size_t>(bytes));
  }
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device_data, static_cast<size_t>(bytes));
  }
  void Synchronize() override {}

 protected:
  void* AllocateRaw(int64_t bytes) override {
    const int64_t rounded = RoundedSize(bytes);
    if (const auto kept = kept_.find(rounded); kept != kept_.end() && !kept->second.empty()) {
      void* data = kept->second.back();
      kept->second.pop_back();
      kept_bytes_ -= rounded;
      return data;
    }
    TrimToPeak();
    void* data = NewBlock(rounded);
    if (data == nullptr) {
      Trim(0);
      data = NewBlock(rounded);
    }
    if (data == nullptr) {
      throw OutOfMemoryError(
          fmt::format("out of memory: the machine has no {} to give", FormatBytes(bytes)));
    }
    return data;
  }

  void FreeRaw(void* data, int64_t bytes) override {
    const int64_t rounded = RoundedSize(bytes);
    kept_[rounded].push_back(data);
    kept_bytes_ += rounded;
    TrimToPeak();
  }

 private:
  static int64_t RoundedSize(int64_t bytes) {
    return RoundUp(std::max<int64_t>(bytes, 1), bytes >= 2 * kHugePage ? kHugePage : kAlignment);
  }

  void* NewBlock(int64_t rounded) {
    if (HugeRegions::Fits(rounded)) return regions_.Take(rounded);
    const bool huge = rounded >= 2 * kHugePage;
    const auto size = static_cast<size_t>(rounded);
    void* data = std::aligned_alloc(static_cast<size_t>(huge ? kHugePage : kAlignment), size);
    // Large buffers are walked front to back; huge pages save most of the page-table walks.
    if (huge && data != nullptr) madvise(data, size, MADV_HUGEPAGE);
    return data;
  }

  void FreeBlock(void* data, int64_t rounded) {
    if (HugeRegions::Fits(rounded)) return regions_.Return(data, rounded);
    std::free(data);
  }

  void TrimToPeak() {
    Trim(std::max(kAlwaysKept, memory().peak_total() - memory().current_total()));
  }
  /// Returns kept blocks to the system until at most `limit_bytes` are left.
  void Trim(int64_t limit_bytes) {
    for (auto kept = kept_.begin(); kept_bytes_ > limit_bytes; kept = kept_.erase(kept)) {
      for (; !kept->second.empty() && kept_bytes_ > limit_bytes; kept->second.pop_back()) {
        FreeBlock(kept->second.back(), kept->first);
        kept_bytes_ -= kept->first;
      }
      if (!kept->second.empty()) return;
    }
  }

  HugeRegions regions_;
  std::map<int64_t, std::vector<void*>> kept_;  // by rounded size
  int64_t kept_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads) {
  TRIMTAB_ASSERT(threads >= 1, "a cpu rank needs a thread, got {}", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trimtab

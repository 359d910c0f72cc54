// The cpu device: host memory, everything synchronous.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/device/caching_allocator.h"
#include "engine/device/device.h"

namespace trimtab {
namespace {

/// Segments of huge pages: large buffers are walked front to back, and these save most of the
/// page-table walks. Pages that nobody has touched take no memory.
class HostMemory final : public MemorySource {
 public:
  std::string_view name() const override { return "machine"; }
  void* Allocate(int64_t bytes) override {
    constexpr int64_t kHugePage = 2 * kMiB;
    const auto size = static_cast<size_t>(RoundUp(bytes, kHugePage));
    void* data = std::aligned_alloc(static_cast<size_t>(kHugePage), size);
    if (data != nullptr) madvise(data, size, MADV_HUGEPAGE);
    return data;
  }
  void Free(void* data) override { std::free(data); }
};

/// What is freed is kept for the rest of a step and for the next one: fresh pages from the kernel
/// cost more than many of the ops that use them.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : Device(DeviceKind::kCpu, {DeviceKind::kCpu, threads}) {}

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device_data, host, static_cast<size_t>(bytes));
  }
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device_data, static_cast<size_t>(bytes));
  }
  void Synchronize() override {}

 protected:
  void* AllocateRaw(int64_t bytes) override {
    return allocator_.Allocate(std::max<int64_t>(1, bytes));
  }

  void FreeRaw(void* data, int64_t /*bytes*/) override {
    allocator_.Free(data);
    // More than steps have needed, and than stands between blocks, is of something that is over.
    const int64_t peak = memory().peak_total();
    const int64_t most = peak + peak / 8 + 2 * CachingAllocator::kLargeSegment;
    if (allocator_.reserved_bytes() > most) allocator_.Trim();
  }

 private:
  HostMemory source_;
  CachingAllocator allocator_{source_};
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads) {
  TRIMTAB_ASSERT(threads >= 1, "a cpu rank needs a thread, got {}", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trimtab

// The cpu device: host memory, everything synchronous.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/device/device.h"

namespace trimtab {
namespace {

constexpr int64_t kAlignment = 64;  // one cache line, one AVX-512 vector
constexpr int64_t kHugePage = 2 * kMiB;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : Device(DeviceKind::kCpu, threads) {}

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device_data, host, static_cast<size_t>(bytes));
  }
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device_data, static_cast<size_t>(bytes));
  }
  void Synchronize() override {}

 protected:
  void* AllocateRaw(int64_t bytes) override {
    const bool huge = bytes >= 2 * kHugePage;
    const int64_t alignment = huge ? kHugePage : kAlignment;
    const auto rounded = static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), alignment));
    void* data = std::aligned_alloc(static_cast<size_t>(alignment), rounded);
    if (data == nullptr) {
      throw OutOfMemoryError(
          fmt::format("out of memory: the machine has no {} to give", FormatBytes(bytes)));
    }
    // Large buffers are walked front to back; huge pages save most of the page-table walks.
    if (huge) madvise(data, rounded, MADV_HUGEPAGE);
    return data;
  }
  void FreeRaw(void* data, int64_t) override { std::free(data); }
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads) {
  TRIMTAB_ASSERT(threads >= 1, "a cpu rank needs a thread, got {}", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trimtab

// The cpu device: host memory, everything synchronous.
//
// Freed blocks are kept for the next allocation of the same size: a training step asks for the same
// sizes over and over, and fresh pages from the kernel cost more than many of the ops that use
// them. What is kept and in use together never exceeds the device's own peak, but for a MiB, so
// that tiny models need no malloc either.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/device/device.h"

namespace trimtab {
namespace {

constexpr int64_t kAlignment = 64;  // one cache line, one AVX-512 vector
constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kAlwaysKept = kMiB;

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

  static void* NewBlock(int64_t rounded) {
    const bool huge = rounded >= 2 * kHugePage;
    const auto size = static_cast<size_t>(rounded);
    void* data = std::aligned_alloc(static_cast<size_t>(huge ? kHugePage : kAlignment), size);
    // Large buffers are walked front to back; huge pages save most of the page-table walks.
    if (huge && data != nullptr) madvise(data, size, MADV_HUGEPAGE);
    return data;
  }

  void TrimToPeak() {
    Trim(std::max(kAlwaysKept, memory().peak_total() - memory().current_total()));
  }
  /// Returns kept blocks to the system until at most `limit_bytes` are left.
  void Trim(int64_t limit_bytes) {
    for (auto kept = kept_.begin(); kept_bytes_ > limit_bytes; kept = kept_.erase(kept)) {
      for (; !kept->second.empty() && kept_bytes_ > limit_bytes; kept->second.pop_back()) {
        std::free(kept->second.back());
        kept_bytes_ -= kept->first;
      }
      if (!kept->second.empty()) return;
    }
  }

  std::map<int64_t, std::vector<void*>> kept_;  // by rounded size
  int64_t kept_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads) {
  TRIMTAB_ASSERT(threads >= 1, "a cpu rank needs a thread, got {}", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trimtab

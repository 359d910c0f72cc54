// The meta device: memory without bytes. Ops on it check shapes and report their cost; nothing is
// computed, so any rank of any cluster can be stepped through on a laptop.
#include <cstring>

#include "engine/base/error.h"
#include "engine/device/device.h"

namespace trimtab {
namespace {

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(const Executor& imitated) : Device(DeviceKind::kMeta, imitated) {}

  void CopyFromHost(void*, const void*, int64_t) override {}
  void CopyToHost(void* host, const void*, int64_t bytes) override {
    if (bytes > 0) std::memset(host, 0, static_cast<size_t>(bytes));
  }
  void Synchronize() override {}

 protected:
  void* AllocateRaw(int64_t) override { return nullptr; }
  void FreeRaw(void*, int64_t) override {}
};

}  // namespace

std::unique_ptr<Device> MakeMetaDevice(int threads, DeviceKind imitated) {
  TRIMTAB_ASSERT(threads >= 1 && imitated != DeviceKind::kMeta,
                 "a meta rank imitates a rank with at least one thread, got {}", threads);
  return std::make_unique<MetaDevice>(Executor{imitated, threads});
}

}  // namespace trimtab

// Copies from host memory that keep neither the host nor the GPU waiting.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "engine/device/cuda/stream.h"

namespace trimtab {

/// A ring of buffers, each once in pinned host memory and once on the GPU. A copy goes from the
/// caller's memory to the pinned half by the host, from there to the other half on a stream of its
/// own while the GPU computes, and to its destination in the order of the device's stream: what
/// crosses the bus does not hold up the kernels before it. The host waits only for a slot whose
/// copy across the bus, kSlots copies ago, is not done.
class Staging {
 public:
  static constexpr int64_t kSlotBytes = int64_t{1} << 20;
  static constexpr size_t kSlots = 8;

  /// `host` may be reused on return; work submitted to `stream` later sees the copy. `await` waits
  /// for a slot.
  void Copy(void* device_data, const void* host, int64_t bytes, cudaStream_t stream,
            const std::function<void(const CudaEvent&)>& await);

 private:
  struct Slot {
    PinnedMemory host = AllocatePinnedMemory(kSlotBytes);
    DeviceMemory device = AllocateDeviceMemory(kSlotBytes);
    CudaEvent arrived;   // the host half may be written
    CudaEvent consumed;  // the device half may be written
  };

  CudaStream copies_{CudaStream::Priority::kNormal};
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

}  // namespace trimtab

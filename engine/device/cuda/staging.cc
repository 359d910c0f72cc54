#include "engine/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cuda/check.h"

namespace trimtab {

void Staging::Copy(void* device_data, const void* host, int64_t bytes, cudaStream_t stream,
                   const std::function<void(const CudaEvent&)>& await) {
  for (int64_t done = 0; done < bytes; done += kSlotBytes) {
    const auto count = static_cast<size_t>(std::min(kSlotBytes, bytes - done));
    const Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    await(slot.arrived);
    std::memcpy(slot.host.get(), static_cast<const char*>(host) + done, count);
    WaitForEvent(copies_.get(), slot.consumed);
    TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(slot.device.get(), slot.host.get(), count,
                                       cudaMemcpyHostToDevice, copies_.get()));
    slot.arrived.Record(copies_.get());
    WaitForEvent(stream, slot.arrived);
    TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(device_data) + done, slot.device.get(),
                                       count, cudaMemcpyDeviceToDevice, stream));
    slot.consumed.Record(stream);
  }
}

}  // namespace trimtab

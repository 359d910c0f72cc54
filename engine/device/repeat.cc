#include "engine/device/repeat.h"

namespace trimtab {

void Repeat(Device& device, int64_t times, const std::function<void(int64_t)>& work) {
  if (times < 1) return;
  auto* const counts = device.kind() == DeviceKind::kMeta
                           ? dynamic_cast<RepeatRecorder*>(device.recorder())
                           : nullptr;
  if (counts == nullptr) {
    for (int64_t i = 0; i < times; ++i) work(i);
    return;
  }
  counts->BeginRepeated(times);
  work(0);
  counts->EndRepeated();
}

}  // namespace trimtab

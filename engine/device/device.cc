#include "engine/device/device.h"

#include "engine/base/error.h"

namespace trimtab {

Storage::~Storage() {
  device_.memory().Remove(bytes_, tag_);
  device_.FreeRaw(data_, bytes_);
}

std::shared_ptr<Storage> Device::Allocate(int64_t bytes, MemoryTag tag) {
  memory_.Add(bytes, tag);
  void* data = nullptr;
  try {
    data = AllocateRaw(bytes);
  } catch (...) {
    memory_.Remove(bytes, tag);
    throw;
  }
  return std::make_shared<Storage>(*this, data, bytes, tag);
}

std::unique_ptr<CapturedWork> Device::Capture(const std::function<void()>& /*work*/) {
  TRIMTAB_ASSERT(false, "this device cannot capture its work");
}

}  // namespace trimtab

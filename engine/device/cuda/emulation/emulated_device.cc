#include "engine/device/cuda/emulation/emulated_device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr size_t kAlignment = 256;  // a GPU's allocations start at such multiples
constexpr size_t kGuard = 256;      // bytes before and after every allocation
constexpr unsigned char kGuardByte = 0xa5;
constexpr unsigned char kFreshByte = 0xff;

// From the start of the allocation to the end of the guard behind it.
size_t EndOfGuard(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kGuard;
}

// The first `fresh` bytes are marked as fresh: all of an allocation, but only what kernels are
// likely to use of the scratch, most of which the system then need not provide.
void* NewBlock(int64_t bytes, int64_t fresh) {
  const auto size = static_cast<size_t>(bytes);
  const size_t end = EndOfGuard(size);
  auto* block = static_cast<unsigned char*>(std::aligned_alloc(kAlignment, kGuard + end));
  if (block == nullptr) {
    throw OutOfMemoryError(
        fmt::format("out of memory: the machine has no {} to give", FormatBytes(bytes)));
  }
  unsigned char* data = block + kGuard;
  std::memset(block, kGuardByte, kGuard);
  std::memset(data, kFreshByte, static_cast<size_t>(fresh));
  std::memset(data + size, kGuardByte, end - size);
  return data;
}

void FreeBlock(void* pointer, int64_t bytes) {
  const auto* data = static_cast<const unsigned char*>(pointer);
  const auto size = static_cast<size_t>(bytes);
  const auto intact = [](unsigned char byte) { return byte == kGuardByte; };
  TRIMTAB_ASSERT(std::all_of(data - kGuard, data, intact) &&
                     std::all_of(data + size, data + EndOfGuard(size), intact),
                 "a kernel wrote outside an allocation of {} bytes", bytes);
  std::free(static_cast<unsigned char*>(pointer) - kGuard);
}

class EmulatedGraph : public CapturedWork {
 public:
  ~EmulatedGraph() override {
    for (const auto& [data, bytes] : kept) FreeBlock(data, bytes);
  }
  void Replay() override {
    for (const auto& work : recording) work();
  }

  std::vector<std::function<void()>> recording;
  std::vector<EmulatedDevice::Block> kept;
};

}  // namespace

EmulatedDevice::EmulatedDevice(const CudaOps* ops, const EmulatedDeviceOptions& options)
    : Device(DeviceKind::kCuda, {DeviceKind::kCuda, 1}),
      options_(options),
      scratch_(NewBlock(options.scratch_bytes, std::min(options.scratch_bytes, kMiB))) {
  set_cuda_ops(ops);
}

EmulatedDevice::~EmulatedDevice() { FreeBlock(scratch_, options_.scratch_bytes); }

void* EmulatedDevice::AllocateRaw(int64_t bytes) { return NewBlock(bytes, bytes); }

void EmulatedDevice::FreeRaw(void* data, int64_t bytes) {
  if (kept_ != nullptr) {
    kept_->push_back({data, bytes});
  } else {
    FreeBlock(data, bytes);
  }
}

void EmulatedDevice::CopyFromHost(void* device_data, const void* host, int64_t bytes) {
  TRIMTAB_ASSERT(stream_.recording == nullptr, "a copy from the host while capturing");
  if (bytes > 0) std::memcpy(device_data, host, static_cast<size_t>(bytes));
}

void EmulatedDevice::CopyToHost(void* host, const void* device_data, int64_t bytes) {
  TRIMTAB_ASSERT(stream_.recording == nullptr, "a copy to the host while capturing");
  if (bytes > 0) std::memcpy(host, device_data, static_cast<size_t>(bytes));
}

void EmulatedDevice::Synchronize() {
  TRIMTAB_ASSERT(stream_.recording == nullptr, "waiting for the device while capturing");
}

std::unique_ptr<CapturedWork> EmulatedDevice::Capture(const std::function<void()>& work) {
  TRIMTAB_ASSERT(stream_.recording == nullptr, "a capture within a capture");
  auto graph = std::make_unique<EmulatedGraph>();
  stream_.recording = &graph->recording;
  kept_ = &graph->kept;
  const auto stop = [this] {
    stream_.recording = nullptr;
    kept_ = nullptr;
  };
  try {
    work();
  } catch (...) {
    stop();
    throw;
  }
  stop();
  return graph;
}

}  // namespace trimtab

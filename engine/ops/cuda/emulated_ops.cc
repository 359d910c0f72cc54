#include "engine/ops/cuda/emulated_ops.h"

#include "engine/device/cuda/emulation/emulated_device.h"
#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {

std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options) {
  static const CudaOps kernels = [] {
    CudaOps ops;
    FillCudaOps(ops);
    return ops;
  }();
  return std::make_unique<EmulatedDevice>(&kernels, options);
}

}  // namespace trimtab

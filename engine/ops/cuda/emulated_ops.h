// The emulated device with all kernels: what tests run CUDA code on where there is no GPU.
#pragma once

#include <memory>

#include "engine/device/cuda/emulation/emulated_device.h"

namespace trimtab {

std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options = {});

}  // namespace trimtab

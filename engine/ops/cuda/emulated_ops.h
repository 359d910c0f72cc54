// The emulated device with all kernels: what tests run CUDA code on where there is no GPU.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace trimtab {

std::unique_ptr<Device> MakeEmulatedDevice(bool deterministic = false);

}  // namespace trimtab

// What the CUDA backend, a shared object, hands to the program that loads it.
#pragma once

#include <memory>
#include <string>

#include "engine/device/cuda/loader.h"
#include "engine/device/device.h"

namespace trimtab {

struct CudaBackend {
  /// Asks the driver; never throws.
  CudaAvailability (*find_devices)();
  /// With its table of kernels. The ordinal is in [0, device_count).
  std::unique_ptr<Device> (*make_device)(const CudaDeviceOptions& options);
  /// See WatchDevice.
  void (*watch_device)(Device& device, std::unique_ptr<WaitWatch> watch);
  /// "0000:3b:00.0": how other libraries know a GPU, whatever order they count in.
  std::string (*pci_bus_id)(int ordinal);
};

/// The one symbol the loader looks up.
inline constexpr char kCudaEntryPoint[] = "trimtab_cuda_backend";
using CudaEntryPoint = const CudaBackend* (*)();

}  // namespace trimtab

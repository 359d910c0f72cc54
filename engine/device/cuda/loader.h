// GPUs, behind a shared object that is loaded on first use: a program that never asks for a GPU
// does not pay for the CUDA libraries, and runs where there are none.
#pragma once

#include <memory>
#include <string>

#include "engine/device/cuda/power_sampler.h"
#include "engine/device/cuda/watched_wait.h"
#include "engine/device/device.h"

namespace trimtab {

struct CudaAvailability {
  int device_count = 0;
  std::string reason;  // when there is no device: why, in one line
};

/// Loads the backend at the first call; later calls return the same answer. Never throws.
/// The backend is $TRIMTAB_CUDA_BACKEND if set, else libtrimtab_cuda.so beside the program or among
/// the files that Bazel places for it. Safe from any thread.
const CudaAvailability& FindCudaDevices();

/// What a rank on a GPU is made with.
struct CudaDeviceOptions {
  int ordinal = 0;
  /// Every op gives the same bits at every call, whatever it costs.
  bool deterministic = false;
  /// Its first recorder names ops and messages to NVIDIA's profilers (nvtx_recorder.h).
  bool nvtx = false;
};

/// A rank on a GPU. Throws EnvironmentError with the reason when there is no such device.
std::unique_ptr<Device> MakeCudaDevice(const CudaDeviceOptions& options);
/// The same, with ranges for a profiler when $TRIMTAB_NVTX is set and not empty.
std::unique_ptr<Device> MakeCudaDevice(int ordinal, bool deterministic = false);

/// From now on `watch` looks after the rank of `device`, which MakeCudaDevice made, while the host
/// waits for it; so do the NCCL groups of the rank, whose errors end the wait too.
void WatchDevice(Device& device, std::unique_ptr<WaitWatch> watch);

/// What reads the power and the clocks of a GPU, or why nothing does.
PowerSampler::Opened OpenPowerSampler(int ordinal);

}  // namespace trimtab

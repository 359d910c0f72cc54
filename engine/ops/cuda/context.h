// What a launch needs to know of its device: for kernels, and for host code that calls the CUDA
// libraries.
#pragma once

#include <cstdint>

#include "engine/base/error.h"
#include "engine/device/device.h"

#ifdef TRIMTAB_CUDA_EMULATION
#include "engine/device/cuda/emulation/cuda_emulation.h"
#else
#include <cuda_runtime.h>
#endif

namespace trimtab {

/// What a launch needs to know of its device.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  /// Memory of the device for as long as one op runs, in stream order: a constant of the device
  /// that the memory tracker does not count.
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  int multiprocessors = 1;
  /// Shared memory that a block may have.
  int64_t shared_bytes = 48 << 10;
  /// Equal inputs must give equal bits: no float atomics.
  bool deterministic = false;

  /// The first `count` elements of scratch, after `offset_bytes` (a multiple of 16).
  template <typename T>
  T* Scratch(int64_t count, int64_t offset_bytes = 0) const {
    const int64_t end = offset_bytes + count * static_cast<int64_t>(sizeof(T));
    TRIMTAB_ASSERT(end <= scratch_bytes, "a kernel needs {} bytes of scratch, there are {}", end,
                   scratch_bytes);
    return reinterpret_cast<T*>(static_cast<char*>(scratch) + offset_bytes);
  }
};

/// Of a cuda device. Makes its GPU the calling thread's current one.
LaunchContext ContextOf(Device& device);

/// Sets `bytes` bytes of device memory to zero, in stream order.
void FillZero(const LaunchContext& context, void* data, int64_t bytes);
/// Copies between device memory of one device, in stream order; the ranges do not overlap.
void CopyBytes(const LaunchContext& context, void* destination, const void* source, int64_t bytes);

}  // namespace trimtab

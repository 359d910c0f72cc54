// What every CUDA kernel is written over. One .cu source compiles with nvcc for the GPU and, with
// the emulation, with g++ for the host, where the tests run it.
//
// Kernels are plain CUDA C++ in an unnamed namespace; what only a GPU has (inline PTX) stands
// behind `#ifdef __CUDACC__` with an equivalent beside it (TRIMTAB_CUDA_EMULATION says that the
// emulation compiles). Dynamic shared memory is
// SharedMemory<T>(), static is `__shared__`. A barrier or a shuffle that not all threads reach
// fails under emulation, as does a misaligned pack.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/cuda/context.h"
#include "engine/ops/cuda/pack.h"
#include "engine/ops/cuda/reduce.h"
#include "engine/ops/cuda/types.h"

namespace trimtab {

/// The elements of `tensor`, which must be of storage type T; nullptr where it is undefined.
template <typename T>
T* Data(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr;
}

/// Where a launch stands in the source, for its errors.
struct LaunchSite {
  // Implicit: the call of Launch fills in the place.
  LaunchSite(const LaunchContext& launch_context, const char* launch_file = __builtin_FILE(),
             int launch_line = __builtin_LINE())
      : context(launch_context), file(launch_file), line(launch_line) {}

  const LaunchContext& context;
  const char* file;
  int line;
};

#ifndef TRIMTAB_CUDA_EMULATION

/// Throws when `status` is not success.
void CheckLaunch(cudaError_t status, const LaunchSite& site);
/// Lets `kernel` use more dynamic shared memory than the default 48 KiB.
void AllowSharedMemory(const void* kernel, size_t bytes, const LaunchSite& site);

/// Dynamic shared memory of the block: as many bytes as the launch asked for, aligned to 128.
template <typename T>
__device__ __forceinline__ T* SharedMemory() {
  extern __shared__ __align__(128) unsigned char trimtab_shared_memory[];
  return reinterpret_cast<T*>(trimtab_shared_memory);
}

/// Submits kernel(arguments...) over `grid` blocks of `block` threads. An empty grid is no work.
template <typename... Parameters, typename... Arguments>
void Launch(const LaunchSite& site, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kDefaultLimit = 48 << 10;
  if (shared_bytes > kDefaultLimit) {
    AllowSharedMemory(reinterpret_cast<const void*>(kernel), shared_bytes, site);
  }
  kernel<<<grid, block, shared_bytes, site.context.stream>>>(static_cast<Parameters>(arguments)...);
  CheckLaunch(cudaGetLastError(), site);
}

#else

template <typename T>
T* SharedMemory() {
  return static_cast<T*>(emulation::DynamicSharedMemory());
}

template <typename... Parameters, typename... Arguments>
void Launch(const LaunchSite& site, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const emulation::LaunchShape shape{grid, block, shared_bytes, site.file, site.line};
  emulation::Submit(site.context.stream, [=] {
    emulation::Run(shape, [=] { kernel(static_cast<Parameters>(arguments)...); });
  });
}

#endif

/// Blocks for a loop over `items` in strides of the whole grid, `per_block` at a time: enough to
/// fill the GPU with `blocks_per_multiprocessor`, and no more than there is work for.
inline unsigned GridFor(const LaunchContext& context, int64_t items, int64_t per_block,
                        int blocks_per_multiprocessor) {
  const int64_t needed = (items + per_block - 1) / per_block;
  const int64_t most = int64_t{context.multiprocessors} * blocks_per_multiprocessor;
  return static_cast<unsigned>(std::min(needed, most));
}

}  // namespace trimtab

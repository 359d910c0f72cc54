#include "engine/ops/cuda/context.h"

#include <cstring>

#include "engine/ops/cuda/kernel.h"

#ifdef TRIMTAB_CUDA_EMULATION
#include "engine/device/cuda/emulation/emulated_device.h"
#else
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#endif

namespace trimtab {

#ifdef TRIMTAB_CUDA_EMULATION

LaunchContext ContextOf(Device& device) {
  auto& emulated = static_cast<EmulatedDevice&>(device);
  return {.stream = emulated.stream(),
          .scratch = emulated.scratch(),
          .scratch_bytes = emulated.options().scratch_bytes,
          .multiprocessors = emulated.options().multiprocessors,
          .shared_bytes = emulation::kMaxSharedBytes,
          .deterministic = emulated.options().deterministic};
}

void FillZero(const LaunchContext& context, void* data, int64_t bytes) {
  emulation::Submit(context.stream, [=] {
    if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
  });
}

void CopyBytes(const LaunchContext& context, void* destination, const void* source, int64_t bytes) {
  emulation::Submit(context.stream, [=] {
    if (bytes > 0) std::memcpy(destination, source, static_cast<size_t>(bytes));
  });
}

#else

LaunchContext ContextOf(Device& device) {
  auto& cuda = static_cast<CudaDevice&>(device);
  return {.stream = cuda.Activate(),
          .scratch = cuda.scratch(),
          .scratch_bytes = CudaDevice::kScratchBytes,
          .multiprocessors = cuda.multiprocessors(),
          .shared_bytes = cuda.shared_bytes(),
          .deterministic = cuda.deterministic()};
}

void FillZero(const LaunchContext& context, void* data, int64_t bytes) {
  if (bytes == 0) return;
  TRIMTAB_CUDA_CHECK(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), context.stream));
}

void CopyBytes(const LaunchContext& context, void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return;
  TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToDevice, context.stream));
}

void CheckLaunch(cudaError_t status, const LaunchSite& site) {
  if (status != cudaSuccess) ThrowCudaError(status, "kernel launch", site.file, site.line);
}

void AllowSharedMemory(const void* kernel, size_t bytes, const LaunchSite& site) {
  CheckLaunch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(bytes)),
              site);
}

#endif

}  // namespace trimtab

// The cuda device: one rank on one GPU, one stream, memory from a stream-ordered pool.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "engine/base/units.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/device.h"

namespace trimtab {

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override;
  void Synchronize() override;

  /// Makes this GPU the calling thread's current one and returns the stream all work goes to.
  cudaStream_t Activate() const;

  /// Whether every op must give the same bits at every call.
  bool deterministic() const { return deterministic_; }
  int multiprocessors() const { return multiprocessors_; }

  /// Memory for what lives within one op, in stream order, aligned to 256 bytes. Not counted by the
  /// memory tracker: it is a constant of the device, like the context.
  void* scratch() const { return scratch_; }
  static constexpr int64_t kScratchBytes = 64 * kMiB;

  cublasLtHandle_t cublas() const { return cublas_; }
  /// The same for matrix products, which may run beside a kernel that uses the scratch.
  void* cublas_workspace() const { return cublas_workspace_; }
  static constexpr int64_t kCublasWorkspaceBytes = 32 * kMiB;  // what cuBLAS advises for Hopper

 protected:
  void* AllocateRaw(int64_t bytes) override;
  void FreeRaw(void* data, int64_t bytes) override;

 private:
  void Release();

  int ordinal_;
  bool deterministic_;
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  void* cublas_workspace_ = nullptr;
  void* scratch_ = nullptr;
};

/// Asks the driver for its devices; never throws.
CudaAvailability FindDevicesOfDriver();

}  // namespace trimtab

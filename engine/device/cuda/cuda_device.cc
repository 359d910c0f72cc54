#include "engine/device/cuda/cuda_device.h"

#include <limits>

#include "engine/base/log.h"
#include "engine/device/cuda/check.h"

namespace trimtab {
namespace {

/// For destructors, which must not throw: what went wrong is still said.
template <typename Status>
void WarnIfFailed(Status status, const char* call) {
  if (!CudaSucceeded(status))
    LogWarning("{} failed with status {}", call, static_cast<int>(status));
}

}  // namespace

CudaAvailability FindDevicesOfDriver() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return {0, fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status))};
  }
  return {count, count > 0 ? "" : "the driver lists no device"};
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options)
    : Device(DeviceKind::kCuda, {DeviceKind::kCuda, 1}),
      ordinal_(options.ordinal),
      deterministic_(options.deterministic) {
  try {
    TRIMTAB_CUDA_CHECK(cudaSetDevice(ordinal_));
    TRIMTAB_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    // Freed memory stays in the pool: giving it back to the driver would stall every step.
    cudaMemPool_t pool = nullptr;
    TRIMTAB_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, ordinal_));
    uint64_t keep_all = std::numeric_limits<uint64_t>::max();
    TRIMTAB_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
    TRIMTAB_CUDA_CHECK(cublasLtCreate(&cublas_));
    TRIMTAB_CUDA_CHECK(cudaMalloc(&cublas_workspace_, kCublasWorkspaceBytes));
    TRIMTAB_CUDA_CHECK(cudaMalloc(&scratch_, kScratchBytes));
    TRIMTAB_CUDA_CHECK(
        cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal_));
  } catch (...) {
    Release();
    throw;
  }
}

CudaDevice::~CudaDevice() { Release(); }

void CudaDevice::Release() {
  WarnIfFailed(cudaSetDevice(ordinal_), "cudaSetDevice");
  if (stream_ != nullptr) WarnIfFailed(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  if (cublas_ != nullptr) WarnIfFailed(cublasLtDestroy(cublas_), "cublasLtDestroy");
  if (cublas_workspace_ != nullptr) WarnIfFailed(cudaFree(cublas_workspace_), "cudaFree");
  if (scratch_ != nullptr) WarnIfFailed(cudaFree(scratch_), "cudaFree");
  if (stream_ != nullptr) WarnIfFailed(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

cudaStream_t CudaDevice::Activate() const {
  TRIMTAB_CUDA_CHECK(cudaSetDevice(ordinal_));
  return stream_;
}

void* CudaDevice::AllocateRaw(int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  TRIMTAB_CUDA_CHECK(cudaMallocAsync(&data, static_cast<size_t>(bytes), Activate()));
  return data;
}

void CudaDevice::FreeRaw(void* data, int64_t /*bytes*/) {
  if (data == nullptr) return;
  WarnIfFailed(cudaSetDevice(ordinal_), "cudaSetDevice");
  WarnIfFailed(cudaFreeAsync(data, stream_), "cudaFreeAsync");
}

void CudaDevice::CopyFromHost(void* device_data, const void* host, int64_t bytes) {
  TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(device_data, host, static_cast<size_t>(bytes),
                                     cudaMemcpyHostToDevice, Activate()));
  Synchronize();
}

void CudaDevice::CopyToHost(void* host, const void* device_data, int64_t bytes) {
  TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(host, device_data, static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToHost, Activate()));
  Synchronize();
}

void CudaDevice::Synchronize() { TRIMTAB_CUDA_CHECK(cudaStreamSynchronize(Activate())); }

}  // namespace trimtab

#include "engine/device/cuda/cuda_device.h"

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/graph.h"
#include "engine/device/cuda/nvtx_recorder.h"

namespace trimtab {

CudaAvailability FindDevicesOfDriver() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return {0, fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status))};
  }
  return {count, count > 0 ? "" : "the driver lists no device"};
}

std::string PciBusId(int ordinal) {
  char text[32] = {};
  TRIMTAB_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof(text), ordinal));
  return text;
}

void* DriverMemory::Allocate(int64_t bytes) {
  // A capture forbids its thread whatever might wait for the GPU. This call does not touch what is
  // captured, so it is let through.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  TRIMTAB_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  TRIMTAB_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // forgotten here, so that the next check of a launch does not report it
    return nullptr;
  }
  TRIMTAB_CUDA_CHECK(status);
  return data;
}

void DriverMemory::Free(void* data) { WarnIfFailed(cudaFree(data), "cudaFree"); }

CudaDevice::Current::Current(int ordinal) { TRIMTAB_CUDA_CHECK(cudaSetDevice(ordinal)); }

CudaDevice::Cublas CudaDevice::MakeCublas() {
  cublasLtHandle_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtCreate(&handle));
  return Cublas(handle);
}

void CudaDevice::DestroyCublas::operator()(cublasLtHandle_t handle) const {
  const cublasStatus_t status = cublasLtDestroy(handle);
  if (!CudaSucceeded(status)) LogWarning("cublasLtDestroy: {}", cublasLtGetStatusString(status));
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options)
    : Device(DeviceKind::kCuda, {DeviceKind::kCuda, 1}),
      ordinal_(options.ordinal),
      deterministic_(options.deterministic),
      current_(options.ordinal) {
  TRIMTAB_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal_));
  TRIMTAB_CUDA_CHECK(
      cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal_));
  if (options.nvtx) set_recorder(&State<NvtxRecorder>());
}

CudaDevice::~CudaDevice() {
  WarnIfFailed(cudaSetDevice(ordinal_), "cudaSetDevice");
  WarnIfFailed(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  WarnIfFailed(cudaStreamSynchronize(comm_stream_.get()), "cudaStreamSynchronize");
}

cudaStream_t CudaDevice::Activate() const {
  TRIMTAB_CUDA_CHECK(cudaSetDevice(ordinal_));
  return stream_.get();
}

void* CudaDevice::AllocateRaw(int64_t bytes) {
  if (bytes == 0) return nullptr;
  Activate();
  return allocator_.Allocate(bytes);
}

void CudaDevice::FreeRaw(void* data, int64_t /*bytes*/) {
  if (data != nullptr) allocator_.Free(data);
}

BorrowedMemory CudaDevice::Borrow(int64_t bytes) {
  Activate();
  return BorrowedMemory(allocator_.TryAllocate(bytes), ReturnMemory{&allocator_});
}

void CudaDevice::RefuseInCapture(const char* what) const {
  TRIMTAB_ASSERT(!capturing_, "{} while work is captured", what);
}

void CudaDevice::CopyFromHost(void* device_data, const void* host, int64_t bytes) {
  RefuseInCapture("a copy from the host");
  staging_.Copy(device_data, host, bytes, Activate(),
                [this](const CudaEvent& event) { Await(event); });
}

void CudaDevice::CopyToHost(void* host, const void* device_data, int64_t bytes) {
  RefuseInCapture("a copy to the host");
  TRIMTAB_CUDA_CHECK(cudaMemcpyAsync(host, device_data, static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToHost, Activate()));
  Synchronize();
}

void CudaDevice::Synchronize() {
  RefuseInCapture("a wait");
  reached_.Record(Activate());
  Await(reached_);
}

void CudaDevice::Await(const CudaEvent& event) {
  if (watch_ == nullptr) return event.Synchronize();
  WatchedWait([&event] { return event.Reached(); }, *watch_);
}

std::unique_ptr<CapturedWork> CudaDevice::Capture(const std::function<void()>& work) {
  RefuseInCapture("a capture");
  // The graph's memory comes fresh from the driver, so what is only cached is given back first.
  Synchronize();
  allocator_.Trim();
  std::shared_ptr<CapturePool> pool = capture_pool_.lock();
  if (pool == nullptr) capture_pool_ = pool = std::make_shared<CapturePool>(allocator_);
  CudaGraph graph;
  capturing_ = true;
  try {
    pool->Use([&] {
      graph = CaptureGraph(Activate(), [&] {
        work();
        const int64_t lacked = allocator_.lacked_bytes();
        if (lacked == 0) return;
        throw OutOfMemoryError(fmt::format("captured work needs {} more than the GPU has to give",
                                           FormatBytes(lacked)));
      });
    });
  } catch (...) {
    capturing_ = false;
    throw;
  }
  capturing_ = false;
  return std::make_unique<GraphWork>(*this, std::move(graph), std::move(pool));
}

}  // namespace trimtab

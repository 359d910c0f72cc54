#include "engine/device/cuda/stream.h"

#include "engine/base/log.h"
#include "engine/device/cuda/check.h"

namespace trimtab {

void WarnIfFailed(cudaError_t status, const char* call) {
  if (CudaSucceeded(status)) return;
  LogWarning("{} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

CudaEvent::CudaEvent(Timing timing) {
  TRIMTAB_CUDA_CHECK(cudaEventCreateWithFlags(
      &event_, timing == Timing::kYes ? cudaEventDefault : cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() { WarnIfFailed(cudaEventDestroy(event_), "cudaEventDestroy"); }

void CudaEvent::Record(cudaStream_t stream) const {
  TRIMTAB_CUDA_CHECK(cudaEventRecord(event_, stream));
}

void CudaEvent::Synchronize() const { TRIMTAB_CUDA_CHECK(cudaEventSynchronize(event_)); }

bool CudaEvent::Reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // no error; the next check of a launch must not report it
    return false;
  }
  TRIMTAB_CUDA_CHECK(status);
  return true;
}

float CudaEvent::MillisecondsSince(const CudaEvent& earlier) const {
  Synchronize();
  float milliseconds = 0;
  TRIMTAB_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return milliseconds;
}

CudaStream::CudaStream(Priority priority) {
  int lowest = 0;
  int highest = 0;
  TRIMTAB_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  TRIMTAB_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                                  priority == Priority::kHigh ? highest : lowest));
}

CudaStream::~CudaStream() { WarnIfFailed(cudaStreamDestroy(stream_), "cudaStreamDestroy"); }

void WaitForEvent(cudaStream_t stream, const CudaEvent& event) {
  TRIMTAB_CUDA_CHECK(cudaStreamWaitEvent(stream, event.get(), 0));
}

void FreeDeviceMemory::operator()(void* data) const { WarnIfFailed(cudaFree(data), "cudaFree"); }

DeviceMemory AllocateDeviceMemory(int64_t bytes) {
  void* data = nullptr;
  TRIMTAB_CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(bytes)));
  return DeviceMemory(data);
}

void FreePinnedMemory::operator()(void* data) const {
  WarnIfFailed(cudaFreeHost(data), "cudaFreeHost");
}

PinnedMemory AllocatePinnedMemory(int64_t bytes) {
  void* data = nullptr;
  TRIMTAB_CUDA_CHECK(cudaMallocHost(&data, static_cast<size_t>(bytes)));
  return PinnedMemory(data);
}

}  // namespace trimtab

// Streams, events and memory of the CUDA runtime, owned. They belong to the GPU that is the calling
// thread's current one when they are made.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

namespace trimtab {

/// For destructors, which must not throw: what went wrong is still said, in the log.
void WarnIfFailed(cudaError_t status, const char* call);

/// A moment in a stream.
class CudaEvent {
 public:
  /// Events that only order streams cost less than those that also take the time.
  enum class Timing { kNo, kYes };

  explicit CudaEvent(Timing timing = Timing::kNo);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  cudaEvent_t get() const { return event_; }
  /// The moment is when everything submitted to `stream` so far is done.
  void Record(cudaStream_t stream) const;
  /// Waits, on the host, for the moment recorded last; not at all if there is none.
  void Synchronize() const;
  /// Whether Synchronize would return at once.
  bool Reached() const;
  /// Time on the GPU between two moments; waits for this one. Both take the time.
  float MillisecondsSince(const CudaEvent& earlier) const;

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream {
 public:
  /// Where multiprocessors come free, high priority goes first.
  enum class Priority { kNormal, kHigh };

  explicit CudaStream(Priority priority);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Work submitted to `stream` from now on waits for the moment recorded last.
void WaitForEvent(cudaStream_t stream, const CudaEvent& event);

struct FreeDeviceMemory {
  void operator()(void* data) const;
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;
/// Straight from the driver; throws OutOfMemoryError.
DeviceMemory AllocateDeviceMemory(int64_t bytes);

struct FreePinnedMemory {
  void operator()(void* data) const;
};
using PinnedMemory = std::unique_ptr<void, FreePinnedMemory>;
/// Host memory that the GPU copies from and to by itself; throws OutOfMemoryError.
PinnedMemory AllocatePinnedMemory(int64_t bytes);

}  // namespace trimtab

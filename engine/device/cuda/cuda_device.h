// The cuda device: one rank on one GPU.
//
// Ops run on one stream, in the order they are called; a second stream carries messages, a third
// copies from the host. Memory comes from a caching allocator.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>

#include "engine/base/units.h"
#include "engine/device/caching_allocator.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/cuda/staging.h"
#include "engine/device/cuda/stream.h"
#include "engine/device/cuda/watched_wait.h"
#include "engine/device/device.h"

namespace trimtab {

/// Segments from cudaMalloc, also while a stream is captured.
class DriverMemory final : public MemorySource {
 public:
  std::string_view name() const override { return "GPU"; }
  void* Allocate(int64_t bytes) override;
  void Free(void* data) override;
};

/// Memory of the caching allocator for as long as it is held.
struct ReturnMemory {
  CachingAllocator* allocator = nullptr;
  void operator()(void* data) const { allocator->Free(data); }
};
using BorrowedMemory = std::unique_ptr<void, ReturnMemory>;

class CapturePool;

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override;
  void Synchronize() override;

  /// Who looks after the rank while Synchronize and the copies wait; nullptr = nobody.
  void set_watch(std::unique_ptr<WaitWatch> watch) { watch_ = std::move(watch); }

  bool CanCapture() const override { return true; }
  /// A CUDA graph. Streams that `work` draws in by events must be joined again when it returns.
  /// Throws OutOfMemoryError where its memory is not there beside the rest; `work` has then been
  /// called to its end, as for a capture that went well.
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override;
  /// Whether what is submitted now is recorded instead of run.
  bool capturing() const { return capturing_; }

  /// Makes this GPU the calling thread's current one and returns the stream all work goes to.
  cudaStream_t Activate() const;
  /// For messages between ranks, ahead of the ops that run beside them. What it reads and writes
  /// is ordered by events; memory must not be freed before the device's stream has joined it.
  cudaStream_t comm_stream() const { return comm_stream_.get(); }

  int ordinal() const { return ordinal_; }
  /// Whether every op must give the same bits at every call.
  bool deterministic() const { return deterministic_; }
  int multiprocessors() const { return multiprocessors_; }
  /// Shared memory that a block may have.
  int64_t shared_bytes() const { return shared_bytes_; }

  /// Memory for what lives within one op, in stream order, aligned to 256 bytes. Not counted by the
  /// memory tracker: it is a constant of the device, like the context.
  void* scratch() const { return scratch_.get(); }
  /// The most is asked for by cuDNN's attention backward: a little over 128 MiB for grouped heads
  /// of Llama's size and 8192 tokens. With less it takes several turns.
  static constexpr int64_t kScratchBytes = 132 * kMiB;

  /// Memory that the tracker does not count; null when there is not that much. For what is not part
  /// of the run: trying out algorithms.
  BorrowedMemory Borrow(int64_t bytes);
  const CachingAllocator& allocator() const { return allocator_; }

  /// What a kind of op keeps for this device between calls (its plans, by shape): one object per
  /// type, made at the first call and destroyed with the device.
  template <typename T>
  T& State() {
    std::shared_ptr<void>& state = states_[std::type_index(typeid(T))];
    if (state == nullptr) state = std::make_shared<T>();
    return *static_cast<T*>(state.get());
  }

  cublasLtHandle_t cublas() const { return cublas_.get(); }
  /// The scratch of matrix products, which may run beside a kernel that uses the other one.
  void* cublas_workspace() const { return cublas_workspace_.get(); }
  static constexpr int64_t kCublasWorkspaceBytes = 32 * kMiB;  // what cuBLAS advises for Hopper

 protected:
  void* AllocateRaw(int64_t bytes) override;
  void FreeRaw(void* data, int64_t bytes) override;

 private:
  /// Makes the GPU current before the members below are made.
  struct Current {
    explicit Current(int ordinal);
  };
  struct DestroyCublas {
    void operator()(cublasLtHandle_t handle) const;
  };
  using Cublas = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, DestroyCublas>;
  static Cublas MakeCublas();
  void RefuseInCapture(const char* what) const;
  /// Waits on the host for what `event` marks.
  void Await(const CudaEvent& event);

  int ordinal_;
  bool deterministic_;
  bool capturing_ = false;
  int multiprocessors_ = 0;
  int shared_bytes_ = 0;
  Current current_;
  CudaStream stream_{CudaStream::Priority::kNormal};
  CudaStream comm_stream_{CudaStream::Priority::kHigh};
  Staging staging_;
  DriverMemory driver_;
  CachingAllocator allocator_{driver_};
  std::weak_ptr<CapturePool> capture_pool_;
  DeviceMemory scratch_ = AllocateDeviceMemory(kScratchBytes);
  DeviceMemory cublas_workspace_ = AllocateDeviceMemory(kCublasWorkspaceBytes);
  Cublas cublas_ = MakeCublas();
  CudaEvent reached_;  // by the stream, when Synchronize was called
  std::map<std::type_index, std::shared_ptr<void>> states_;
  std::unique_ptr<WaitWatch> watch_;
};

/// Asks the driver for its devices; never throws.
CudaAvailability FindDevicesOfDriver();
/// "0000:3b:00.0".
std::string PciBusId(int ordinal);

}  // namespace trimtab

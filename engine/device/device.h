// Device: where tensors live and ops run. One engine, three implementations:
//   cpu   runs anywhere; the reference
//   meta  computes nothing, records every op, message and allocation
//   cuda  NVIDIA GPUs, in a shared object loaded on demand
//
// A Device object belongs to one rank. It is not thread-safe: one rank thread uses it at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/base/device_kind.h"
#include "engine/device/memory.h"
#include "engine/device/record.h"

namespace trimtab {

class Device;
struct CudaComm;
struct CudaOps;

/// What decides how much scratch an op takes: the kind of device that runs it (on meta: the kind it
/// imitates) and the worker threads of the rank.
struct Executor {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;
};

/// Device work recorded once, to be run again with the same memory: a CUDA graph.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Submits the work; like any op, it runs in the order of the device's stream.
  virtual void Replay() = 0;
};

/// One allocation, returned to its device when the last tensor over it goes away.
class Storage {
 public:
  Storage(Device& device, void* data, int64_t bytes, MemoryTag tag)
      : device_(device), data_(data), bytes_(bytes), tag_(tag) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return device_; }
  void* data() const { return data_; }  // nullptr on meta

 private:
  Device& device_;
  void* data_;
  int64_t bytes_;
  MemoryTag tag_;
};

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const { return kind_; }
  /// Worker threads ops of this rank may use. On meta: those of the cpu rank it imitates.
  int threads() const { return executor_.threads; }
  /// Who runs the ops, or on meta: whom it imitates.
  const Executor& executor() const { return executor_; }

  /// Uninitialised memory. Counts exactly `bytes` under `tag`.
  /// Throws OutOfMemoryError when the memory limit or the machine is exhausted.
  std::shared_ptr<Storage> Allocate(int64_t bytes, MemoryTag tag);

  /// Copies between this device and host memory, in the order of the ops. On return from
  /// CopyFromHost the host memory may be reused, and work submitted later sees the copy; CopyToHost
  /// is complete on return. No effect on meta, except that CopyToHost fills the destination with
  /// zeros.
  virtual void CopyFromHost(void* device_data, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device_data, int64_t bytes) = 0;
  /// Waits until everything submitted so far is done.
  virtual void Synchronize() = 0;

  /// Whether Capture works here.
  virtual bool CanCapture() const { return false; }
  /// Records the device work that `work` submits, without running it. What `work` allocates it
  /// must free; the memory stays reserved for the replays. It must neither copy to or from the host
  /// nor wait.
  /// An error where CanCapture() is false.
  virtual std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work);

  /// The kernels of a cuda device (engine/ops/cuda_ops.h); nullptr on the others.
  const CudaOps* cuda_ops() const { return cuda_ops_; }
  void set_cuda_ops(const CudaOps* ops) { cuda_ops_ = ops; }
  /// What communicators need of a cuda device (engine/comm/cuda_comm.h); nullptr on the others.
  const CudaComm* cuda_comm() const { return cuda_comm_; }
  void set_cuda_comm(const CudaComm* comm) { cuda_comm_ = comm; }

  MemoryTracker& memory() { return memory_; }
  const MemoryTracker& memory() const { return memory_; }

  /// Where ops and messages are reported; nullptr = nobody listens. Not owned.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }
  /// Tells whoever listens what it is that follows: see Recorder.
  void EnterAction(int64_t index) {
    if (recorder_ != nullptr) recorder_->EnterAction(index);
  }
  void EnterPiece(const PieceRecord& piece) {
    piece_ = piece;
    if (recorder_ != nullptr) recorder_->EnterPiece(piece);
  }
  /// The last piece that was entered.
  const PieceRecord& piece() const { return piece_; }
  /// Numbers the asynchronous messages of this device: 1, 2, ...
  int64_t NextMessageId() { return ++last_message_id_; }

 protected:
  Device(DeviceKind kind, const Executor& executor) : kind_(kind), executor_(executor) {}

  virtual void* AllocateRaw(int64_t bytes) = 0;  // throws OutOfMemoryError
  virtual void FreeRaw(void* data, int64_t bytes) = 0;

 private:
  friend class Storage;

  DeviceKind kind_;
  Executor executor_;
  MemoryTracker memory_;
  Recorder* recorder_ = nullptr;
  PieceRecord piece_;
  int64_t last_message_id_ = 0;
  const CudaOps* cuda_ops_ = nullptr;
  const CudaComm* cuda_comm_ = nullptr;
};

/// A cpu rank with `threads` worker threads (>= 1).
std::unique_ptr<Device> MakeCpuDevice(int threads);

/// A meta rank that imitates a rank of another kind, with `threads` worker threads.
std::unique_ptr<Device> MakeMetaDevice(int threads, DeviceKind imitated = DeviceKind::kCpu);

}  // namespace trimtab

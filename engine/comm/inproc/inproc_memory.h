// InprocMemory: how one rank of an in-process group reaches its peers' buffers. In host memory that
// takes nothing. On cuda devices the work goes to the rank's stream, and marks order it with the
// work of the peers: what made their buffers comes before it, what overwrites them after.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/inproc/inproc_group.h"

namespace trimtab {

class InprocMemory {
 public:
  /// Takes up `device` for the coming call, and shows it, with its marks, in `call`. A communicator
  /// may be given tensors of one cuda device and of any number of cpu devices.
  void Use(Device& device, InprocCall& call);

  // Of the device in use; without a stream the marks do nothing.

  /// Sets the mark that the peers of a collective wait for before they touch this rank's buffers.
  void SetReady();
  /// Lets this rank's work wait for the buffers of all peers, or of one.
  void AwaitReady(const InprocGroup& group, int rank);
  void AwaitReady(const InprocCall& peer);
  /// Sets the mark behind this rank's part.
  void SetDone();
  /// Lets this rank's later work wait for the parts of the peers it awaited last.
  void AwaitDone();
  /// A mark of its own behind what was submitted so far; nullptr without a stream.
  std::shared_ptr<StreamMark> SetMark() const;

  /// `count` elements of a peer's buffer `from` into `to`.
  void Copy(const void* from, int64_t from_offset, Tensor& to, int64_t to_offset, int64_t count);
  void Copy(const void* from, void* to, int64_t bytes);
  /// As ReduceRange; `like` has the dtype.
  void Reduce(const Tensor& like, ReduceOp op, std::span<const void* const> sources,
              std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift);

 private:
  bool on_stream() const { return device_ != nullptr && device_->kind() == DeviceKind::kCuda; }

  Device* device_ = nullptr;
  Device* marked_device_ = nullptr;  // of the two marks
  std::shared_ptr<StreamMark> ready_;
  std::shared_ptr<StreamMark> done_;
  std::vector<std::shared_ptr<StreamMark>> peers_done_;
  std::vector<const Device*> connected_;
};

}  // namespace trimtab

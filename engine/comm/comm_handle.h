// CommHandle: a message that was submitted and has to be waited for.
#pragma once

#include <atomic>
#include <memory>

#include "engine/device/tensor.h"

namespace trimtab {

/// What a communicator knows of a message under way. Goes away without Wait only when the rank
/// fails; it then leaves the message in a state in which nobody touches this rank's buffers.
class PendingMessage {
 public:
  virtual ~PendingMessage() = default;
  /// Lets what is submitted from now on see the result. Called at most once.
  virtual void Wait() = 0;
};

/// A message of this rank that is under way. Until Wait, nobody may write its input, or read or
/// write its output; the handle keeps the memory of both.
///
/// Every handle must be waited for. To drop one is a programmer's fault, unless its communicator
/// has failed or an exception is on its way.
class CommHandle {
 public:
  /// Nothing to wait for.
  CommHandle() = default;
  ~CommHandle();
  CommHandle(CommHandle&& other) noexcept = default;
  CommHandle& operator=(CommHandle&& other) noexcept;

  /// What is submitted to the device from now on sees the result; on a device without a stream, it
  /// is there. Of a send: the receiver has the data, the tensor may be written. Returns at once
  /// when there is nothing to wait for any more. Throws CommError when the group has failed.
  void Wait();

 private:
  friend class Communicator;

  struct State {
    CommRecord message;
    Tensor in;
    Tensor out;
    std::shared_ptr<std::atomic<bool>> failed;  // of the communicator
    std::unique_ptr<PendingMessage> pending;    // null: the work was done when it was submitted
  };
  explicit CommHandle(std::unique_ptr<State> state) : state_(std::move(state)) {}
  void CheckDropped() const;

  std::unique_ptr<State> state_;  // null: nothing to wait for
};

}  // namespace trimtab

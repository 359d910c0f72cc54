// Communicator: collectives and point-to-point messages of one rank within one group.
//
// Every rank of a group calls the same operations in the same order. Reductions add ranks in rank
// order, so results are the same on every rank and in every run (except over NCCL, whose order
// depends on the machine's links, though not on the run). An error on one rank makes every later
// call on the other ranks throw CommError; nothing hangs.
//
// On a device with a stream, calls are ordered like ops: they wait for what was submitted before,
// and what is submitted after them sees their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/comm_handle.h"
#include "engine/device/tensor.h"

namespace trimtab {

/// Another rank of the group failed; `what()` carries its message.
struct CommError : Error {
  explicit CommError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

enum class ReduceOp { kSum, kMax };

/// Elements [begin, begin + count) of a buffer.
struct BufferPart {
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const BufferPart&) const = default;
};

class Communicator {
 public:
  virtual ~Communicator() { failed_->store(true); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  GroupKind group() const { return group_; }

  // Each reports a CommRecord to the tensor's device, then does the work. With size() == 1 they
  // report nothing and only copy input to output where these differ. In-place means that `in` is
  // the rank's own part of `out` (all-gather), or `out` the rank's own part of `in`
  // (reduce-scatter).

  /// buffer = op over ranks of buffer.
  void AllReduce(Tensor& buffer, ReduceOp op = ReduceOp::kSum);
  /// out [n] = the rank's n-element part of the sum over ranks of in [n * size].
  void ReduceScatter(const Tensor& in, Tensor& out);
  /// out [n * size] = the in [n] of every rank, in rank order.
  void AllGather(const Tensor& in, Tensor& out);
  void Broadcast(Tensor& buffer, int root);
  /// Part send[i] of `in` goes to rank i, whose receive[rank()] part of `out` has as many elements.
  /// Parts of `out` do not overlap, nor do in and out; parts of `in` may. What is in no part of
  /// `out` stays as it is. Throws Error where a count is not that of the other end.
  void AllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                std::span<const BufferPart> receive);

  // The same, submitted without waiting; the handle is waited for. A communicator with no stream of
  // its own may do the work at once.
  [[nodiscard]] CommHandle AllReduceAsync(Tensor& buffer, ReduceOp op = ReduceOp::kSum);
  [[nodiscard]] CommHandle ReduceScatterAsync(const Tensor& in, Tensor& out);
  [[nodiscard]] CommHandle AllGatherAsync(const Tensor& in, Tensor& out);

  /// Messages between two ranks. Those from one rank to another match in the order in which they
  /// are submitted. Any number may be under way, to and from any ranks, beside collectives, and
  /// they may be waited for in any order. A send is complete when the matching receive has the
  /// data.
  [[nodiscard]] CommHandle SendAsync(const Tensor& tensor, int destination);
  [[nodiscard]] CommHandle RecvAsync(Tensor& tensor, int source);
  /// The same, waited for.
  void Send(const Tensor& tensor, int destination);
  void Recv(Tensor& tensor, int source);
  /// Returns when every rank has entered.
  void Barrier();

  /// Whether its calls may be part of Device::Capture.
  bool CanCapture() const { return size_ == 1 || DoCanCapture(); }

  /// Marks the group as failed: ranks waiting in it, and all later calls, throw CommError.
  void Abort(const std::string& reason) {
    failed_->store(true);
    DoAbort(reason);
  }

 protected:
  Communicator(GroupKind group, int rank, int size) : group_(group), rank_(rank), size_(size) {}

  virtual void DoAllReduce(Tensor& buffer, ReduceOp op) = 0;
  virtual void DoReduceScatter(const Tensor& in, Tensor& out) = 0;
  virtual void DoAllGather(const Tensor& in, Tensor& out) = 0;
  virtual void DoBroadcast(Tensor& buffer, int root) = 0;
  virtual void DoAllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                          std::span<const BufferPart> receive) = 0;
  virtual void DoBarrier() = 0;
  virtual void DoAbort(const std::string& reason) = 0;
  virtual bool DoCanCapture() const { return false; }

  /// Work that is submitted; nullptr when it was done at once.
  using Pending = std::unique_ptr<PendingMessage>;
  virtual Pending DoAllReduceAsync(Tensor& buffer, ReduceOp op);
  virtual Pending DoReduceScatterAsync(const Tensor& in, Tensor& out);
  virtual Pending DoAllGatherAsync(const Tensor& in, Tensor& out);
  virtual Pending DoSendAsync(const Tensor& tensor, int destination) = 0;
  virtual Pending DoRecvAsync(Tensor& tensor, int source) = 0;
  virtual void DoSend(const Tensor& tensor, int destination);
  virtual void DoRecv(Tensor& tensor, int source);

 private:
  // Check the tensors and describe the message.
  CommRecord AllReduceRecord(const Tensor& buffer) const;
  CommRecord ReduceScatterRecord(const Tensor& in, const Tensor& out) const;
  CommRecord AllGatherRecord(const Tensor& in, const Tensor& out) const;
  CommRecord MessageRecord(CollectiveKind kind, const Tensor& tensor, int peer) const;
  /// Checks the parts, one for each rank, and says what they come to.
  int64_t PartBytes(const Tensor& tensor, std::span<const BufferPart> parts) const;
  /// Reports the message while `work` runs, and notes when that throws.
  template <typename Work>
  void Run(const Tensor& tensor, const CommRecord& message, const Work& work);
  /// As Run, for work that returns Pending.
  template <typename Work>
  CommHandle Submit(const Tensor& in, const Tensor& out, CommRecord message, const Work& work);

  GroupKind group_;
  int rank_;
  int size_;
  // What handles of this rank ask. True also once the communicator is gone.
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
};

/// `bytes`, in host memory, become those of rank `root`: of a group that carries such. Every rank
/// passes as many.
void BroadcastHostBytes(Communicator& group, std::span<std::byte> bytes, int root);
/// A message of bytes in host memory between two ranks of such a group; both pass as many. No
/// bytes are no message.
void SendHostBytes(Communicator& group, std::span<const std::byte> bytes, int destination);
void RecvHostBytes(Communicator& group, std::span<std::byte> bytes, int source);

/// The communicators of `size` ranks that are threads of this process: element i is for rank i.
/// They carry tensors of cpu devices and of cuda devices.
std::vector<std::unique_ptr<Communicator>> MakeInprocGroup(GroupKind group, int size);

/// The communicator of one rank of a group in which nothing is sent: messages are only reported.
std::unique_ptr<Communicator> MakeMetaCommunicator(GroupKind group, int rank, int size);

}  // namespace trimtab

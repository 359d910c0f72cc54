// MpiWorld: this process among those that mpirun started. Groups of ranks meet and move host memory
// through it; a failure of one rank reaches all others.
//
// Before anything moves, the ranks of a call tell one another what they are about to do, so calls
// that do not fit throw on every rank instead of hanging. A rank that waits finds out when another
// has failed, is lost, or holds it up for longer than it may (rank_monitor.h).
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/comm_call.h"
#include "engine/comm/comm_handle.h"
#include "engine/comm/mpi/call_header.h"
#include "engine/comm/mpi/rank_monitor.h"
#include "engine/comm/mpi/run_failure.h"
#include "engine/comm/mpi/transport.h"

namespace trimtab {

class MpiWorld {
 public:
  /// `local_rank`: among the processes of this machine, `local_size` of them. Every process makes
  /// its world together with the others.
  MpiWorld(std::unique_ptr<MpiTransport> transport, int local_rank, int local_size);
  /// Ends MPI, or all processes where a rank is lost or this one leaves in the middle of a run.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// The world of this process; MPI starts at the first call and ends with the process.
  /// Throws EnvironmentError when mpirun did not start it, the MPI backend cannot be loaded, or MPI
  /// knows of another world than mpirun's.
  static MpiWorld& OfProcess();

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  /// What travels between this rank and one other.
  struct Transfer {
    int peer = 0;                // rank in the world
    const void* send = nullptr;  // `send_bytes` from here go to the peer
    int64_t send_bytes = 0;
    void* receive = nullptr;  // `receive_bytes` from the peer come here
    int64_t receive_bytes = 0;
  };

  /// One rank of a group: its number there, and the world ranks of all of the group's ranks.
  struct Place {
    GroupKind group = GroupKind::kWorld;
    int rank = 0;
    std::span<const int> members;
  };

  /// Returns when all ranks of the group make the same call, after log2(size) rounds in which each
  /// compares its call with another rank's.
  /// Throws Error where the calls do not fit, CommError where a rank has failed.
  void Agree(const Place& place, const CommCall& call);
  /// Moves the bytes. The peers have agreed on the call.
  void Move(const Place& place, const CommCall& call, std::span<const Transfer> transfers);
  /// Submits a message of `tensor`, in host memory, to or from another rank of the group. Its Wait
  /// throws as Agree does; a call that does not fit is noticed by the receiver. The members of
  /// `place` must outlive the message.
  std::unique_ptr<PendingMessage> Submit(const Place& place, const CommCall& call,
                                         const Tensor& tensor);
  /// Keeps memory until the process ends: after a call that failed, MPI may still use its buffers.
  static void Keep(std::shared_ptr<const void> memory);

  /// Sends and receives of calls in groups of this kind that this rank has begun so far.
  int64_t requests(GroupKind group) const { return requests_[static_cast<size_t>(group)]; }

  /// A run begins: until Finish or AgreeOnFailure, a process that ends is one that died.
  void Start() { running_ = true; }
  /// While set, waits of this rank may take any time.
  void set_unlimited(bool unlimited) {
    if (monitor_) monitor_->set_unlimited(unlimited);
  }
  // While this rank waits for its device, which other ranks may hold up:
  void BeginDeviceWait();
  void EndDeviceWait();
  /// Throws CommError where a rank has failed, is lost, or holds up others for too long.
  void ThrowIfFailed();
  /// Of a rank that waits for work, and so gets on: throws CommError where another has failed. The
  /// loss of one is left to the monitor, which tells the user and ends this process.
  void ThrowIfTold();

  /// Tells every other rank that this one has failed, once. Later calls throw CommError.
  void Fail(const RunFailure& failure);
  /// After Fail: waits until all ranks have failed as well, and returns the failure that came first
  /// in rank order among those that are no consequence; returns at once where a rank is lost. Ends
  /// all processes where some rank does not answer within `patience`.
  RunFailure AgreeOnFailure(std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// Returns when every rank has come this far: the end of a run that went well.
  void Finish();

 private:
  class Message;

  void StartMonitor(const MonitorLimits& limits, int local_rank, int local_size);
  void NoteCall() {
    if (monitor_) monitor_->NoteCall();
  }
  // As MpiTransport's, and counted.
  void BeginSend(const Place& place, int peer, int tag, const void* data, int64_t bytes);
  void BeginReceive(const Place& place, int peer, int tag, void* data, int64_t bytes);
  /// Waits for the transfers of the batch. Throws Error once rank `partner` of the world, if given,
  /// has finished.
  void Await(int batch, const Place& place, const CommCall& call, int partner = -1);
  /// Throws Error when `call` of this rank and what rank `peer` of the group calls do not fit.
  void CheckFits(const Place& place, const CommCall& call, int peer,
                 const CallHeader& theirs) const;
  /// To every other rank: a RunFailure, or that this rank has finished when `text` is empty.
  void SendNotices(const std::string& text);
  void TakeNotices();
  void ThrowNotices();

  std::unique_ptr<MpiTransport> transport_;
  std::unique_ptr<RankMonitor> monitor_;  // null in a world of one
  bool running_ = false;
  int batch_;  // of the calls of whole groups
  CallHeader own_header_{};
  std::vector<CallHeader> headers_;
  std::array<int64_t, kGroupKindCount> requests_{};
  // By world rank.
  std::vector<std::optional<RunFailure>> failures_;
  std::vector<int> finished_;  // runs
  int runs_finished_ = 0;      // by all ranks
};

}  // namespace trimtab

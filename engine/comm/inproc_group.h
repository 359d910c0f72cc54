// InprocGroup: where the ranks of one in-process group meet. Ranks are threads; each lends its
// peers the addresses of its buffers, so data moves straight from one rank's memory to another's.
//
// Nothing hangs: a rank that waits for another is woken when the group is aborted, and the rank
// whose call makes progress impossible (another operation or size than its peers, a message nobody
// will take, a peer that has left) finds that out on entry, under the group's lock, and aborts.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"

namespace trimtab {

/// What one rank asks for. `count` elements: the buffer of an all-reduce, broadcast or message, the
/// part of one rank otherwise.
struct InprocCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kF32;
  int64_t count = 0;
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;  // root of a broadcast, other end of a message
  const void* in = nullptr;
  void* out = nullptr;

  /// Everything but the addresses.
  bool Matches(const InprocCall& other) const;
  /// "all_reduce(sum) of 8 fp32", "send of 8 fp32 to rank 1".
  std::string Describe() const;
};

class InprocGroup {
 public:
  /// `ranks_in_process`: threads that compete for the cores; decides whether waiting ranks spin.
  InprocGroup(GroupKind kind, int size, int ranks_in_process);
  InprocGroup(const InprocGroup&) = delete;
  InprocGroup& operator=(const InprocGroup&) = delete;

  GroupKind kind() const { return kind_; }
  int size() const { return size_; }

  /// Enters a collective and returns when every rank has. Then, until the rank calls Finish, the
  /// peers' calls and buffers may be used.
  /// Throws CommError if the group was aborted, Error if this call does not fit the others'.
  void Begin(int rank, const InprocCall& call);
  const InprocCall& call(int rank) const { return slots_[static_cast<size_t>(rank)].call; }
  /// Returns when every rank has finished. Never throws: each rank has only finite work left.
  void Finish();

  /// Blocking messages; the receiver copies. Throw as Begin does.
  void Send(int rank, const InprocCall& call);
  void Recv(int rank, const InprocCall& call);

  /// Fails the group: whoever waits in it, and every later call, throws CommError(reason).
  void Abort(const std::string& reason);
  /// Says that `rank` will make no more calls.
  void Leave(int rank);

 private:
  enum class State { kRunning, kInCollective, kInMessage, kLeft };
  enum Progress : uint32_t { kPosted, kMatched, kTaken, kAborted };  // of a message

  struct alignas(64) Slot {
    InprocCall call;
    State state = State::kRunning;
    std::atomic<uint32_t> progress{kPosted};
  };

  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  // The functions below are called with mutex_ held.
  void ThrowIfAborted() const;
  void AbortLocked(const std::string& reason);
  std::string FindConflict() const;
  std::string Conflict(int a, int b) const;
  [[noreturn]] void Fail(const std::string& reason);
  // And this one without: meets the other end and waits until it has too.
  void Post(int rank, const InprocCall& call);
  void WaitWhile(std::atomic<uint32_t>& word, uint32_t value) const;

  const GroupKind kind_;
  const int size_;
  const int spins_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  int arrived_ = 0;
  std::string abort_reason_;
  // Bit 0: aborted. The rest counts the meetings (Begin and Finish) that took place. One word, so
  // that a waiting rank sees which of the two came first.
  std::atomic<uint32_t> epoch_{0};
  std::atomic<int> finished_{0};
};

/// The communicator of `rank`; tells the group that it has left when it is destroyed.
std::unique_ptr<Communicator> MakeInprocCommunicator(std::shared_ptr<InprocGroup> group, int rank);

}  // namespace trimtab

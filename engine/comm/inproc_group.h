// InprocGroup: where the ranks of one in-process group meet. Ranks are threads; each lends its
// peers the addresses of its buffers, so data moves straight from one rank's memory to another's.
// On devices with a stream, what the ranks agree on here is what has been submitted, not what has
// run; marks in their streams, shown with the call, order the work itself.
//
// Nothing hangs: a rank that waits is woken when the group is aborted; a rank whose call does not
// fit those of its peers finds out on entry, under the group's lock, and aborts; and the WaitBoard
// finds ranks that wait for one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/comm_call.h"
#include "engine/comm/communicator.h"
#include "engine/comm/cuda_comm.h"
#include "engine/comm/wait_board.h"

namespace trimtab {

/// What one rank asks for, and where its buffers are.
struct InprocCall : CommCall {
  const void* in = nullptr;
  void* out = nullptr;
  Device* device = nullptr;  // of the buffers; nullptr in a barrier
  // Null without a stream. Shared: a peer may come to wait for it after the rank has left.
  std::shared_ptr<StreamMark> ready;  // behind what made the buffers
  std::shared_ptr<StreamMark> done;   // behind the rank's part, once it has called Finish
};

class InprocGroup {
 public:
  /// `world_ranks`: the rank on `board` of each rank of the group. The group must live for as long
  /// as any rank of the board waits.
  InprocGroup(GroupKind kind, std::vector<int> world_ranks, std::shared_ptr<WaitBoard> board);
  InprocGroup(const InprocGroup&) = delete;
  InprocGroup& operator=(const InprocGroup&) = delete;

  GroupKind kind() const { return kind_; }
  int size() const { return static_cast<int>(slots_.size()); }

  /// Enters a collective and returns when every rank has. Then, until the rank calls Finish, the
  /// peers' calls and buffers may be used.
  /// Throws CommError if the group was aborted, Error if this call does not fit the others'.
  void Begin(int rank, const InprocCall& call);
  const InprocCall& call(int rank) const { return slots_[static_cast<size_t>(rank)].call; }
  /// Returns when every rank has finished. Never throws: each rank has only finite work left.
  void Finish(int rank);

  /// Blocking messages. `take` is called with the sender's call and moves the data; the sender
  /// does not return before it has. Throw as Begin does.
  void Send(int rank, const InprocCall& call);
  void Recv(int rank, const InprocCall& call,
            const std::function<void(const InprocCall& sender)>& take);

  /// Fails the group: whoever waits in it, and every later call, throws CommError(reason).
  void Abort(const std::string& reason);

  void Join(int rank) { board_->Join(world_rank(rank)); }
  /// Says that `rank` will make no more calls.
  void Leave(int rank) { board_->Leave(world_rank(rank)); }

 private:
  enum Progress : uint32_t { kPosted, kMatched, kTaken, kAborted };  // of a message

  struct alignas(64) Slot {
    InprocCall call;
    bool message_posted = false;  // and not matched yet
    std::atomic<uint32_t> progress{kPosted};
  };

  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  /// Posts one end of a message and waits for the other.
  void Post(int rank, const InprocCall& call);
  void WaitWhile(int rank, const std::atomic<uint32_t>& word, uint32_t value) const;
  // With mutex_ held:
  void ThrowIfAborted() const;
  void AbortLocked(const std::string& reason);
  [[noreturn]] void FailMismatch(int a, int b);

  const GroupKind kind_;
  const std::vector<int> world_ranks_;
  const std::shared_ptr<WaitBoard> board_;
  const int spins_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  int arrived_ = 0;        // ranks in the collective that is being entered
  int first_arrived_ = 0;  // one of them
  std::string abort_reason_;
  // Bit 0: aborted. The rest counts the meetings (Begin and Finish) that took place. One word, so
  // that a waiting rank sees which of the two came first.
  std::atomic<uint32_t> epoch_{0};
  std::atomic<int> finished_{0};
};

/// The communicator of `rank`; tells the group that it has left when it is destroyed.
std::unique_ptr<Communicator> MakeInprocCommunicator(std::shared_ptr<InprocGroup> group, int rank);

}  // namespace trimtab

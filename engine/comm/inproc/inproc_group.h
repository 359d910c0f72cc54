// InprocGroup: where the ranks of one in-process group meet. Ranks are threads; each lends its
// peers the addresses of its buffers, so data moves straight from one rank's memory to another's;
// small inputs are copied to the group, so that ranks meet once and not twice.
// On devices with a stream, what the ranks agree on here is what has been submitted, not what has
// run; marks in their streams, shown with the call, order the work itself.
//
// Nothing hangs: a rank that waits is woken when the group is aborted; a rank whose call does not
// fit those of its peers finds out on entry, under the group's lock, and aborts; and the WaitBoard
// finds ranks that wait for one another.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/comm/comm_call.h"
#include "engine/comm/communicator.h"
#include "engine/comm/cuda_comm.h"
#include "engine/comm/inproc/wait_board.h"

namespace trimtab {

/// What one rank asks for, and where its buffers are.
struct InprocCall : CommCall {
  const void* in = nullptr;
  int64_t in_bytes = 0;
  void* out = nullptr;
  std::span<const BufferPart> send;  // of an all-to-all
  std::span<const BufferPart> receive;
  Device* device = nullptr;  // of the buffers; nullptr in a barrier
  // Null without a stream. Shared: a peer may come to wait for it after the rank has left.
  std::shared_ptr<StreamMark> ready;  // behind what made the buffers
  std::shared_ptr<StreamMark> done;   // behind the rank's part, once it has called Finish
};

/// One end of a message under way, shared by the rank that submitted it and the group.
struct InprocMessage {
  enum Progress : uint32_t { kPosted, kMoved, kAborted };

  int rank = 0;
  InprocCall call;
  std::shared_ptr<StreamMark>
      moved;  // behind the move, where the other end has made it in a stream
  std::atomic<uint32_t> progress{kPosted};

  /// Says how it has ended, and wakes who waits for that.
  void End(Progress how);
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

  /// Enters a collective and returns when every rank has. Small inputs in host memory are copied
  /// here; true: those of all ranks were, and may be read until `rank` enters its next collective.
  /// False: the peers' calls and buffers may be used until the rank calls Finish, which it must.
  /// Throws CommError if the group was aborted, Error if this call does not fit the others'.
  [[nodiscard]] bool Begin(int rank, const InprocCall& call);
  /// What `peer` asks for in the collective that `rank` is in.
  const InprocCall& call(int rank, int peer) const {
    return slots_[static_cast<size_t>(peer)].calls[slots_[static_cast<size_t>(rank)].turn];
  }
  /// Returns when every rank has finished. Never throws: each rank has only finite work left.
  void Finish(int rank);

  /// Submits one end of a message. Where the other end is there already, in order of submission,
  /// `move` is called with it, here and now, and moves the data; it returns the mark behind that.
  /// Otherwise the rank that submits the other end does so: nobody has to wait for data to move.
  /// Throws as Begin does.
  using Move = std::function<std::shared_ptr<StreamMark>(const InprocCall& other)>;
  std::shared_ptr<InprocMessage> Submit(int rank, const InprocCall& call, const Move& move);
  /// Returns when the data has been moved. Throws CommError if the group was aborted before.
  void Await(const InprocMessage& message);
  /// Takes the message back; returns when nobody uses its buffer.
  void Withdraw(const InprocMessage& message);

  /// Fails the group: whoever waits in it, and every later call, throws CommError(reason).
  void Abort(const std::string& reason);

  void Join(int rank) { board_->Join(world_rank(rank)); }
  /// Says that `rank` will make no more calls.
  void Leave(int rank) { board_->Leave(world_rank(rank)); }

 private:
  /// Of every other collective: once a rank has entered the next one, which all have entered, its
  /// peers may still be reading what it left in the last.
  struct alignas(64) Slot {
    std::array<InprocCall, 2> calls;
    std::array<std::vector<char>, 2> inputs;  // copies
    std::array<std::vector<BufferPart>, 2> parts;
    alignas(64) size_t turn = 0;  // of the two; the rank's own, beside what its peers read
    int spins = 0;                // before the rank sleeps
  };

  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  void WaitWhile(int rank, const CommCall& call, const std::atomic<uint32_t>& word, uint32_t value);
  /// Puts `call` in the rank's slot, with a copy of its input if that is small.
  void Show(Slot& mine, const InprocCall& call);
  /// Whether all ranks of the collective that `rank` is in have left copies.
  bool AllCopied(int rank) const;
  void ThrowIfAborted() const TRIMTAB_REQUIRES(mutex_);
  void AbortLocked(const std::string& reason) TRIMTAB_REQUIRES(mutex_);
  [[noreturn]] void FailMismatch(int a, const CommCall& call_a, int b, const CommCall& call_b)
      TRIMTAB_REQUIRES(mutex_);
  /// Takes the first message out that is the other end of `call`; nullptr where there is none.
  std::shared_ptr<InprocMessage> TakeOtherEnd(int rank, const CommCall& call)
      TRIMTAB_REQUIRES(mutex_);

  const GroupKind kind_;
  const std::vector<int> world_ranks_;
  const std::shared_ptr<WaitBoard> board_;
  const int most_spins_;
  Mutex mutex_;
  std::vector<Slot> slots_;
  // Not matched yet, in order of submission.
  std::vector<std::shared_ptr<InprocMessage>> posted_ TRIMTAB_GUARDED_BY(mutex_);
  // Ranks in the collective that is being entered, and one of them.
  int arrived_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  int first_arrived_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  std::string abort_reason_ TRIMTAB_GUARDED_BY(mutex_);
  // Bit 0: aborted. The rest counts the meetings (Begin and Finish) that took place. One word, so
  // that a waiting rank sees which of the two came first.
  std::atomic<uint32_t> epoch_{0};
  std::atomic<int> finished_{0};
};

/// The communicator of `rank`; tells the group that it has left when it is destroyed.
std::unique_ptr<Communicator> MakeInprocCommunicator(std::shared_ptr<InprocGroup> group, int rank);

}  // namespace trimtab

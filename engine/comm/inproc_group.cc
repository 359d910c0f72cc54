#include "engine/comm/inproc_group.h"

#include <cstring>
#include <thread>

namespace trimtab {
namespace {

constexpr uint32_t kAbortedBit = 1;
constexpr uint32_t kOneMeeting = 2;

// Roughly 50 microseconds: longer than ranks in step drift apart, shorter than a context switch
// hurts. With more ranks than cores a spinning rank only keeps the one it waits for from running.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

bool InprocCall::Matches(const InprocCall& other) const {
  return kind == other.kind && dtype == other.dtype && count == other.count && op == other.op &&
         peer == other.peer;
}

std::string InprocCall::Describe() const {
  const std::string what = fmt::format("{} {}", count, Name(dtype));
  switch (kind) {
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kAllReduce:
      return fmt::format("all_reduce({}) of {}", op == ReduceOp::kSum ? "sum" : "max", what);
    case CollectiveKind::kBroadcast:
      return fmt::format("broadcast of {} from rank {}", what, peer);
    case CollectiveKind::kSend:
      return fmt::format("send of {} to rank {}", what, peer);
    case CollectiveKind::kRecv:
      return fmt::format("recv of {} from rank {}", what, peer);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      break;
  }
  return fmt::format("{} of {} per rank", Name(kind), what);
}

InprocGroup::InprocGroup(GroupKind kind, int size, int ranks_in_process)
    : kind_(kind),
      size_(size),
      spins_(ranks_in_process <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins
                                                                                       : 0),
      slots_(static_cast<size_t>(size)) {
  TRIMTAB_ASSERT(size >= 1, "a group needs a rank, got {}", size);
}

void InprocGroup::Begin(int rank, const InprocCall& call) {
  uint32_t seen = 0;
  {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    slot(rank).call = call;
    slot(rank).state = State::kInCollective;
    const std::string conflict = FindConflict();
    if (!conflict.empty()) Fail(conflict);
    seen = epoch_.load(std::memory_order_relaxed);
    if (++arrived_ == size_) {
      arrived_ = 0;
      for (Slot& each : slots_) each.state = State::kRunning;
      epoch_.fetch_add(kOneMeeting, std::memory_order_release);
      epoch_.notify_all();
      return;
    }
  }
  WaitWhile(epoch_, seen);
  // An abort after the meeting changes nothing here: the peers count on this rank's part.
  if (epoch_.load(std::memory_order_acquire) - seen >= kOneMeeting) return;
  const std::lock_guard lock(mutex_);
  ThrowIfAborted();
}

void InprocGroup::Finish() {
  const uint32_t before = epoch_.load(std::memory_order_relaxed) / kOneMeeting;
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    finished_.store(0, std::memory_order_relaxed);
    epoch_.fetch_add(kOneMeeting, std::memory_order_release);
    epoch_.notify_all();
    return;
  }
  for (;;) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (seen / kOneMeeting != before) return;
    WaitWhile(epoch_, seen);
  }
}

void InprocGroup::Post(int rank, const InprocCall& call) {
  Slot& mine = slot(rank);
  {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    mine.call = call;
    mine.progress.store(kPosted, std::memory_order_relaxed);
    Slot& other = slot(call.peer);
    const bool sends = call.kind == CollectiveKind::kSend;
    const auto wanted = sends ? CollectiveKind::kRecv : CollectiveKind::kSend;
    if (other.state == State::kInMessage && other.call.kind == wanted && other.call.peer == rank) {
      if (other.call.count != call.count || other.call.dtype != call.dtype) {
        Fail(Conflict(rank, call.peer));
      }
      other.state = State::kRunning;
      mine.progress.store(kMatched, std::memory_order_relaxed);
      other.progress.store(kMatched, std::memory_order_release);
      other.progress.notify_one();
    } else {
      mine.state = State::kInMessage;
      const std::string conflict = FindConflict();
      if (!conflict.empty()) Fail(conflict);
    }
  }
  WaitWhile(mine.progress, kPosted);
  if (mine.progress.load(std::memory_order_acquire) == kAborted) {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
  }
}

void InprocGroup::Send(int rank, const InprocCall& call) {
  Post(rank, call);
  // Abort touches posted messages only, so from here on the receiver is sure to take the data.
  WaitWhile(slot(rank).progress, kMatched);
}

void InprocGroup::Recv(int rank, const InprocCall& call) {
  Post(rank, call);
  Slot& sender = slot(call.peer);
  const int64_t bytes = call.count * SizeOf(call.dtype);
  if (bytes > 0) std::memcpy(call.out, sender.call.in, static_cast<size_t>(bytes));
  sender.progress.store(kTaken, std::memory_order_release);
  sender.progress.notify_one();
}

void InprocGroup::Abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  AbortLocked(reason);
}

void InprocGroup::Leave(int rank) {
  const std::lock_guard lock(mutex_);
  slot(rank).state = State::kLeft;
  if (!abort_reason_.empty()) return;
  const std::string conflict = FindConflict();
  if (!conflict.empty()) AbortLocked(conflict);
}

void InprocGroup::ThrowIfAborted() const {
  if (!abort_reason_.empty()) throw CommError(abort_reason_);
}

void InprocGroup::AbortLocked(const std::string& reason) {
  if (!abort_reason_.empty()) return;
  abort_reason_ = reason.empty() ? "aborted" : reason;
  epoch_.fetch_or(kAbortedBit, std::memory_order_release);
  epoch_.notify_all();
  for (Slot& each : slots_) {
    if (each.state != State::kInMessage) continue;
    each.progress.store(kAborted, std::memory_order_release);
    each.progress.notify_one();
  }
}

void InprocGroup::Fail(const std::string& reason) {
  AbortLocked(reason);
  throw Error(ExitCode::kInternal, reason);
}

// Looks for two ranks that wait for each other, directly or through others. A rank in a collective
// waits for all, a rank in a message for its peer, and one that has left will never come.
std::string InprocGroup::FindConflict() const {
  int in_collective = -1;
  int left = -1;
  bool messages = false;
  for (int rank = 0; rank < size_; ++rank) {
    const Slot& each = slots_[static_cast<size_t>(rank)];
    if (each.state == State::kInCollective) {
      if (in_collective < 0) in_collective = rank;
      if (!each.call.Matches(call(in_collective))) return Conflict(in_collective, rank);
    }
    if (each.state == State::kLeft) left = rank;
    messages = messages || each.state == State::kInMessage;
  }
  if (in_collective >= 0 && left >= 0) return Conflict(in_collective, left);
  if (!messages) return "";
  for (int start = 0; start < size_; ++start) {
    int rank = start;
    for (int steps = 0; steps <= size_; ++steps) {
      const Slot& each = slots_[static_cast<size_t>(rank)];
      if (each.state == State::kRunning) break;
      if (each.state != State::kInMessage || steps == size_) {
        if (rank == start && steps == 0) break;
        return Conflict(start, steps == size_ ? call(start).peer : rank);
      }
      rank = each.call.peer;
    }
  }
  return "";
}

std::string InprocGroup::Conflict(int a, int b) const {
  const auto say = [this](int rank) {
    return slots_[static_cast<size_t>(rank)].state == State::kLeft
               ? fmt::format("rank {} has left the group", rank)
               : fmt::format("rank {} calls {}", rank, call(rank).Describe());
  };
  return fmt::format("{} group of {} ranks: {}, but {}", Name(kind_), size_, say(a), say(b));
}

void InprocGroup::WaitWhile(std::atomic<uint32_t>& word, uint32_t value) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  word.wait(value, std::memory_order_acquire);
}

}  // namespace trimtab

#include "engine/comm/inproc_group.h"

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

InprocGroup::InprocGroup(GroupKind kind, std::vector<int> world_ranks,
                         std::shared_ptr<WaitBoard> board)
    : kind_(kind),
      world_ranks_(std::move(world_ranks)),
      board_(std::move(board)),
      spins_(board_->size() <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0),
      slots_(world_ranks_.size()) {
  TRIMTAB_ASSERT(!slots_.empty(), "a group needs a rank");
  board_->AddAbort([this](const std::string& reason) { Abort(reason); });
}

void InprocGroup::Begin(int rank, const InprocCall& call) {
  uint32_t seen = 0;
  {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    slot(rank).call = call;
    if (arrived_ == 0) first_arrived_ = rank;
    if (!call.Matches(slot(first_arrived_).call)) FailMismatch(first_arrived_, rank);
    seen = epoch_.load(std::memory_order_relaxed);
    if (++arrived_ == size()) {
      arrived_ = 0;
      epoch_.fetch_add(kOneMeeting, std::memory_order_release);
      epoch_.notify_all();
      return;
    }
  }
  WaitWhile(rank, epoch_, seen);
  // An abort after the meeting changes nothing here: the peers count on this rank's part.
  if (epoch_.load(std::memory_order_acquire) - seen >= kOneMeeting) return;
  const std::lock_guard lock(mutex_);
  ThrowIfAborted();
}

void InprocGroup::Finish(int rank) {
  const uint32_t before = epoch_.load(std::memory_order_relaxed) / kOneMeeting;
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    finished_.store(0, std::memory_order_relaxed);
    epoch_.fetch_add(kOneMeeting, std::memory_order_release);
    epoch_.notify_all();
    return;
  }
  for (;;) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (seen / kOneMeeting != before) return;
    WaitWhile(rank, epoch_, seen);
  }
}

void InprocGroup::Post(int rank, const InprocCall& call) {
  Slot& mine = slot(rank);
  {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    mine.call = call;
    Slot& other = slot(call.peer);
    if (other.message_posted && other.call.peer == rank && other.call.kind != call.kind) {
      if (!call.Completes(other.call, call.peer, rank)) FailMismatch(call.peer, rank);
      other.message_posted = false;
      mine.progress.store(kMatched, std::memory_order_relaxed);
      other.progress.store(kMatched, std::memory_order_release);
      other.progress.notify_one();
      return;
    }
    mine.message_posted = true;
    mine.progress.store(kPosted, std::memory_order_relaxed);
  }
  WaitWhile(rank, mine.progress, kPosted);
  if (mine.progress.load(std::memory_order_acquire) != kAborted) return;
  const std::lock_guard lock(mutex_);
  ThrowIfAborted();
}

void InprocGroup::Send(int rank, const InprocCall& call) {
  Post(rank, call);
  // An abort touches posted messages only, so from here on the receiver is sure to take the data.
  WaitWhile(rank, slot(rank).progress, kMatched);
}

void InprocGroup::Recv(int rank, const InprocCall& call,
                       const std::function<void(const InprocCall& sender)>& take) {
  Post(rank, call);
  Slot& sender = slot(call.peer);
  const auto release = [&sender] {
    sender.progress.store(kTaken, std::memory_order_release);
    sender.progress.notify_one();
  };
  try {
    take(sender.call);
  } catch (...) {
    release();
    throw;
  }
  release();
}

void InprocGroup::Abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  AbortLocked(reason);
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
    if (!each.message_posted) continue;
    each.progress.store(kAborted, std::memory_order_release);
    each.progress.notify_one();
  }
}

void InprocGroup::FailMismatch(int a, int b) {
  const std::string reason = DescribeMismatch(kind_, size(), a, call(a), b, call(b));
  AbortLocked(reason);
  throw Error(ExitCode::kInternal, reason);
}

void InprocGroup::WaitWhile(int rank, const std::atomic<uint32_t>& word, uint32_t value) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  board_->Wait(world_rank(rank), word, value, [this, rank] {
    return fmt::format("calls {} in the {} group", call(rank).Describe(), Name(kind_));
  });
}

}  // namespace trimtab

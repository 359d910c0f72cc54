#include "engine/comm/inproc/inproc_group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr uint32_t kAbortedBit = 1;
constexpr uint32_t kOneMeeting = 2;

// Roughly 50 microseconds: longer than ranks in step drift apart, shorter than a context switch
// hurts. With more ranks than cores a spinning rank only keeps the one it waits for from running.
constexpr int kMostSpins = 1000;
// A rank that keeps waiting for long, as that of a short stage does, or whose peers get no core,
// only spins in vain. It does so ever less, down to this, until it sleeps for a moment only.
constexpr int kLeastSpins = 16;
constexpr std::chrono::microseconds kMoment(100);  // a sleep and its wake-up take half of that

// Copying so much is nothing beside another meeting of the ranks.
constexpr int64_t kSmallBytes = 8 * kKiB;

bool IsSmall(const InprocCall& call) {
  return call.device_kind == DeviceKind::kCpu && call.in_bytes <= kSmallBytes;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

// Whoever wakes sleepers first looks whether there are any. What they sleep for must be seen before
// that, or one that goes to sleep meanwhile sleeps on: a store, or an addition that only releases,
// may be seen later.
void InprocMessage::End(Progress how) {
  progress.exchange(how, std::memory_order_seq_cst);
  progress.notify_one();
}

InprocGroup::InprocGroup(GroupKind kind, std::vector<int> world_ranks,
                         std::shared_ptr<WaitBoard> board)
    : kind_(kind),
      world_ranks_(std::move(world_ranks)),
      board_(std::move(board)),
      most_spins_(
          board_->size() <= static_cast<int>(std::thread::hardware_concurrency()) ? kMostSpins : 0),
      slots_(world_ranks_.size()) {
  TRIMTAB_ASSERT(!slots_.empty(), "a group needs a rank");
  for (Slot& each : slots_) each.spins = most_spins_;
  board_->AddAbort([this](const std::string& reason) { Abort(reason); });
}

void InprocGroup::Show(Slot& mine, const InprocCall& call) {
  mine.turn = 1 - mine.turn;
  InprocCall& shown = mine.calls[mine.turn];
  shown = call;
  if (!IsSmall(call)) return;
  std::vector<char>& input = mine.inputs[mine.turn];
  const char* in = static_cast<const char*>(call.in);
  input.assign(in, in + call.in_bytes);
  shown.in = input.data();
  std::vector<BufferPart>& parts = mine.parts[mine.turn];
  parts.assign(call.send.begin(), call.send.end());
  parts.insert(parts.end(), call.receive.begin(), call.receive.end());
  shown.send = std::span(parts).first(call.send.size());
  shown.receive = std::span(parts).last(call.receive.size());
}

bool InprocGroup::AllCopied(int rank) const {
  for (int peer = 0; peer < size(); ++peer) {
    if (!IsSmall(call(rank, peer))) return false;
  }
  return true;
}

bool InprocGroup::Begin(int rank, const InprocCall& call) {
  Show(slot(rank), call);
  uint32_t seen = 0;
  {
    const MutexLock lock(mutex_);
    ThrowIfAborted();
    if (arrived_ == 0) first_arrived_ = rank;
    const InprocCall& first = this->call(rank, first_arrived_);
    if (!call.Matches(first)) FailMismatch(first_arrived_, first, rank, call);
    seen = epoch_.load(std::memory_order_relaxed);
    if (++arrived_ == size()) {
      arrived_ = 0;
      epoch_.fetch_add(kOneMeeting, std::memory_order_seq_cst);
      epoch_.notify_all();
      return AllCopied(rank);
    }
  }
  WaitWhile(rank, call, epoch_, seen);
  // An abort after the meeting changes nothing here: the peers count on this rank's part.
  if (epoch_.load(std::memory_order_acquire) - seen >= kOneMeeting) return AllCopied(rank);
  const MutexLock lock(mutex_);
  ThrowIfAborted();
  return false;
}

void InprocGroup::Finish(int rank) {
  const uint32_t before = epoch_.load(std::memory_order_relaxed) / kOneMeeting;
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    finished_.store(0, std::memory_order_relaxed);
    epoch_.fetch_add(kOneMeeting, std::memory_order_seq_cst);
    epoch_.notify_all();
    return;
  }
  for (;;) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (seen / kOneMeeting != before) return;
    WaitWhile(rank, call(rank, rank), epoch_, seen);
  }
}

std::shared_ptr<InprocMessage> InprocGroup::TakeOtherEnd(int rank, const CommCall& call) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const auto& other) {
    return other->rank == call.peer && other->call.peer == rank && other->call.kind != call.kind;
  });
  if (found == posted_.end()) return nullptr;
  const std::shared_ptr<InprocMessage> other = *found;
  if (!call.Completes(other->call, other->rank, rank)) {
    FailMismatch(other->rank, other->call, rank, call);
  }
  posted_.erase(found);
  return other;
}

std::shared_ptr<InprocMessage> InprocGroup::Submit(int rank, const InprocCall& call,
                                                   const Move& move) {
  const auto mine = std::make_shared<InprocMessage>();
  mine->rank = rank;
  mine->call = call;
  std::shared_ptr<InprocMessage> other;
  {
    const MutexLock lock(mutex_);
    ThrowIfAborted();
    other = TakeOtherEnd(rank, call);
    if (other == nullptr) {
      posted_.push_back(mine);
      return mine;
    }
  }
  // An abort touches posted messages only, so from here on the peer counts on this rank.
  try {
    other->moved = move(other->call);
  } catch (const std::exception& error) {
    Abort(error.what());
    other->End(InprocMessage::kAborted);
    throw;
  }
  other->End(InprocMessage::kMoved);
  mine->progress.store(InprocMessage::kMoved, std::memory_order_relaxed);
  return mine;
}

void InprocGroup::Await(const InprocMessage& message) {
  WaitWhile(message.rank, message.call, message.progress, InprocMessage::kPosted);
  if (message.progress.load(std::memory_order_acquire) == InprocMessage::kMoved) return;
  const MutexLock lock(mutex_);
  ThrowIfAborted();
}

void InprocGroup::Withdraw(const InprocMessage& message) {
  {
    const MutexLock lock(mutex_);
    const auto is_message = [&message](const auto& each) { return each.get() == &message; };
    if (std::erase_if(posted_, is_message) > 0) return;
  }
  // The peer is at its finite work.
  message.progress.wait(InprocMessage::kPosted, std::memory_order_acquire);
}

void InprocGroup::Abort(const std::string& reason) {
  const MutexLock lock(mutex_);
  AbortLocked(reason);
}

void InprocGroup::ThrowIfAborted() const {
  if (!abort_reason_.empty()) throw CommError(abort_reason_);
}

void InprocGroup::AbortLocked(const std::string& reason) {
  if (!abort_reason_.empty()) return;
  abort_reason_ = reason.empty() ? "aborted" : reason;
  epoch_.fetch_or(kAbortedBit, std::memory_order_seq_cst);
  epoch_.notify_all();
  for (const auto& message : posted_) message->End(InprocMessage::kAborted);
  posted_.clear();
}

void InprocGroup::FailMismatch(int a, const CommCall& call_a, int b, const CommCall& call_b) {
  const std::string reason = DescribeMismatch(kind_, size(), a, call_a, b, call_b);
  AbortLocked(reason);
  throw Error(ExitCode::kInternal, reason);
}

void InprocGroup::WaitWhile(int rank, const CommCall& call, const std::atomic<uint32_t>& word,
                            uint32_t value) {
  int& spins = slot(rank).spins;  // 0 for good where ranks outnumber cores
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  const auto asleep = std::chrono::steady_clock::now();
  board_->Wait(world_rank(rank), word, value, [this, &call] {
    return fmt::format("calls {} in the {} group", call.Describe(), Name(kind_));
  });
  const bool in_vain = std::chrono::steady_clock::now() - asleep > kMoment;
  spins = std::min(in_vain ? std::max(spins / 2, kLeastSpins) : 2 * spins, most_spins_);
}

}  // namespace trimtab

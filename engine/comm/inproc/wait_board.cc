#include "engine/comm/inproc/wait_board.h"

#include <fmt/format.h>

namespace trimtab {

namespace {
constexpr int kListedWaits = 8;  // in the reason of a deadlock
}

void WaitBoard::AddAbort(std::function<void(const std::string& reason)> abort) {
  const MutexLock lock(mutex_);
  aborts_.push_back(std::move(abort));
}

void WaitBoard::Join(int rank) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(rank)];
  entry.joined = true;
  ++entry.groups;
}

void WaitBoard::Leave(int rank) {
  std::string deadlock;
  {
    const MutexLock lock(mutex_);
    --entries_[static_cast<size_t>(rank)].groups;
    deadlock = FindDeadlock();
  }
  if (!deadlock.empty()) AbortAll(deadlock);
}

void WaitBoard::Wait(int rank, const std::atomic<uint32_t>& word, uint32_t value,
                     std::function<std::string()> describe) {
  std::string deadlock;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[static_cast<size_t>(rank)];
    entry.word = &word;
    entry.value = value;
    entry.describe = std::move(describe);
    deadlock = FindDeadlock();
  }
  // Aborting takes the locks of groups, so it happens outside of ours.
  if (!deadlock.empty()) AbortAll(deadlock);
  word.wait(value, std::memory_order_acquire);
  const MutexLock lock(mutex_);
  entries_[static_cast<size_t>(rank)].word = nullptr;
}

std::string WaitBoard::FindDeadlock() const {
  int waiting = 0;
  for (const Entry& entry : entries_) {
    const bool left = entry.joined && entry.groups == 0;
    if (left) continue;
    // A rank whose word has changed is awake, though it may not run yet.
    if (entry.word == nullptr || entry.word->load(std::memory_order_acquire) != entry.value) {
      return "";
    }
    ++waiting;
  }
  if (waiting == 0) return "";
  std::string reason = "deadlock, every rank waits for another:";
  int listed = 0;
  for (size_t rank = 0; rank < entries_.size() && listed < kListedWaits; ++rank, ++listed) {
    const Entry& entry = entries_[rank];
    reason += fmt::format("{} rank {} {}", rank == 0 ? "" : ",", rank,
                          entry.word == nullptr ? "has left" : entry.describe());
  }
  if (entries_.size() > kListedWaits) reason += ", ...";
  return reason;
}

void WaitBoard::AbortAll(const std::string& reason) const {
  for (const auto& abort : aborts_) abort(reason);
}

}  // namespace trimtab

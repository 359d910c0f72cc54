// WaitBoard: who waits for what among ranks that are threads of one process.
//
// A rank that is about to sleep enters its wait here. When every rank that has not left sleeps, and
// what each of them sleeps on has not changed, nobody is left to wake anybody: a deadlock, whatever
// calls and groups led to it. Then every group is aborted, with a reason that lists the waits.
//
// A rank is one thread here: it waits for one thing at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"

namespace trimtab {

class WaitBoard {
 public:
  /// For ranks 0..ranks-1. All of them count as running until they join and leave again.
  explicit WaitBoard(int ranks) : size_(ranks), entries_(static_cast<size_t>(ranks)) {}
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;

  int size() const { return size_; }

  /// Adds something that a deadlock aborts. To be called before any rank waits.
  void AddAbort(std::function<void(const std::string& reason)> abort);

  /// A rank joins once per group and has left when it has left all of them.
  void Join(int rank);
  void Leave(int rank);

  /// Sleeps while `word` is `value`. `describe` says what the rank does, and is called, from any
  /// thread, only during this call.
  void Wait(int rank, const std::atomic<uint32_t>& word, uint32_t value,
            std::function<std::string()> describe);

 private:
  struct Entry {
    bool joined = false;  // ever
    int groups = 0;
    const std::atomic<uint32_t>* word = nullptr;  // null while the rank runs
    uint32_t value = 0;
    std::function<std::string()> describe;
  };

  /// Why nobody can go on, or an empty string.
  std::string FindDeadlock() const TRIMTAB_REQUIRES(mutex_);
  void AbortAll(const std::string& reason) const;

  const int size_;
  Mutex mutex_;
  std::vector<Entry> entries_ TRIMTAB_GUARDED_BY(mutex_);
  // Complete before any rank waits.
  std::vector<std::function<void(const std::string& reason)>> aborts_;
};

}  // namespace trimtab

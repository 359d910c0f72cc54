// Workers that stay at hand from one loop to the next.
//
// A parallel region of OpenMP costs some microseconds: its barriers call the kernel, whether or not
// anybody sleeps. A decoded token is a hundred loops of a few microseconds each. So its workers
// enter one region, and the loops are handed to them through a word of memory that they watch.
#pragma once

#include <atomic>
#include <cstdint>

namespace trimtab {

/// A call without ownership, on each of `workers` workers.
struct WorkerTask {
  void (*call)(void* context, int worker, int workers);
  void* context;
};

/// A leader, worker 0, and those who follow. Each is a thread of its own.
class Crew {
 public:
  /// Of so many workers, or of fewer where no more are given.
  explicit Crew(int most);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// By the leader, before Run: how many workers there are, itself among them.
  void Muster(int size) { size_ = size; }
  int size() const { return size_; }

  /// By the leader: `task` on the workers 0 .. workers - 1, at most size(). Returns when all are
  /// done.
  void Run(int workers, const WorkerTask& task);
  /// By the leader: lets the others go.
  void Dismiss();

  /// By another worker: takes part in what is run, until it is dismissed.
  void Follow(int worker);

 private:
  void Begin(int workers, const WorkerTask& task);

  static constexpr int64_t kLine = 64;  // words that are watched share no line with others

  const int most_;
  const int looks_;  // at a word, before its watcher sleeps
  int size_ = 1;
  uint32_t finished_ = 0;  // what done_ becomes with the loop that runs
  int workers_ = 0;
  WorkerTask task_ = {};                            // none: everybody may go
  alignas(kLine) std::atomic<uint32_t> begun_ = 0;  // loops; workers_ and task_ are the last one's
  alignas(kLine) std::atomic<uint32_t> done_ = 0;   // times that a follower was through with one
};

}  // namespace trimtab

// Workers that stay at hand from one loop to the next.
//
// A parallel region of OpenMP costs some microseconds: its barriers call the kernel, whether or not
// anybody sleeps. A decoded token is a hundred loops of a few microseconds each. So its workers
// enter one region, and the loops are handed to them through a word of memory that they watch.
#pragma once

#include <atomic>
#include <cstdint>

namespace trimtab {

/// A call without ownership, on workers that share its items out among themselves: `worker` takes
/// what is left, and returns when nothing is.
struct WorkerTask {
  void (*call)(void* context, int worker);
  void* context;
};

/// A leader, worker 0, and those who follow. Each is a thread of its own.
class WorkerPool {
 public:
  /// Of so many workers, or of fewer where no more are given.
  explicit WorkerPool(int most);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// By the leader: `task` on the workers 0 .. workers - 1. Returns when all who have begun are
  /// done. A worker whose core somebody else has just now does not hold it up: what it would have
  /// done the others do.
  void Run(int workers, const WorkerTask& task);
  /// By the leader: lets the others go.
  void Dismiss();

  /// By another worker: takes part in what is run, until it is dismissed.
  void Follow(int worker);

 private:
  /// In one word: a loop, whether it is over, and how many followers have begun it.
  static constexpr uint64_t kOver = uint64_t{1} << 31;
  static uint64_t Of(uint32_t loop) { return uint64_t{loop} << 32; }

  void Begin(int workers, const WorkerTask& task);
  /// Whether `loop` is not over, nor another one: then it is not over before Leave.
  bool Enter(uint32_t loop);
  void Leave();

  static constexpr int64_t kLine = 64;  // words that are watched share no line with others

  const int most_;
  const int looks_;       // at a word, before its watcher sleeps
  int workers_ = 0;       // these two are for those who have entered the last loop
  WorkerTask task_ = {};  // none: everybody may go
  alignas(kLine) std::atomic<uint32_t> begun_ = 0;    // loops
  alignas(kLine) std::atomic<uint64_t> entered_ = 0;  // the last one, as above
  alignas(kLine) std::atomic<uint32_t> left_ = 0;     // followers who have left the last one
};

}  // namespace trimtab

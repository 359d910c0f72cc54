#include "engine/device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "engine/base/units.h"
#include "engine/device/cpu/worker_pool.h"

namespace trimtab {
namespace {

/// The items [begin, end) that nobody has begun yet. On a cache line of its own.
class alignas(64) Share {
 public:
  void Set(uint64_t begin, uint64_t end) { ends_ = begin << kBits | end; }

  /// The first item or, for others than its worker, the last one; -1 when there is none.
  int64_t Take(bool first) {
    uint64_t ends = ends_;
    while (true) {
      const uint64_t begin = ends >> kBits;
      const uint64_t end = ends & kMask;
      if (begin >= end) return -1;
      const uint64_t left = first ? (begin + 1) << kBits | end : begin << kBits | (end - 1);
      if (ends_.compare_exchange_weak(ends, left)) {
        return static_cast<int64_t>(first ? begin : end - 1);
      }
    }
  }

 private:
  static constexpr int kBits = 32;
  static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  std::atomic<uint64_t> ends_ = 0;
};

// Of the thread that leads it; nullptr while one of its loops runs.
thread_local WorkerPool* crew_at_hand = nullptr;

// Calls fn(worker) on `workers` workers, or on some of them: they share out among themselves what
// there is to do.
template <typename Fn>
void OnWorkers(int workers, const Fn& fn) {
  WorkerPool* const worker_pool = std::exchange(crew_at_hand, nullptr);
  if (worker_pool != nullptr) {
    worker_pool->Run(workers,
                     {[](void* context, int worker) { (*static_cast<const Fn*>(context))(worker); },
                      const_cast<void*>(static_cast<const void*>(&fn))});
    crew_at_hand = worker_pool;
    return;
  }
#pragma omp parallel num_threads(workers)
  fn(omp_get_thread_num());
}

}  // namespace

void UseThreads(int threads) { omp_set_num_threads(threads); }

void RunWithWorkerPool(int threads, const PlainTask& task) {
  if (threads <= 1 || crew_at_hand != nullptr) return task.call(task.context);
  WorkerPool worker_pool(threads);
  std::exception_ptr error;  // must not leave the region
#pragma omp parallel num_threads(threads)
  if (omp_get_thread_num() > 0) {
    worker_pool.Follow(omp_get_thread_num());
  } else {
    crew_at_hand = &worker_pool;
    try {
      task.call(task.context);
    } catch (...) {
      error = std::current_exception();
    }
    crew_at_hand = nullptr;
    worker_pool.Dismiss();
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void RunRanges(int threads, int64_t count, int64_t grain, RangeTask task) {
  if (count <= 0) return;
  const int64_t grains = CeilDiv(count, grain);
  const int workers = static_cast<int>(std::min<int64_t>(threads, grains));
  if (workers <= 1) {
    task.call(task.context, 0, count);
    return;
  }
  // Each worker has a range of its own, so it finds in its caches what the last loop left there.
  const auto run = [&](int64_t range, int) {
    const int64_t begin = std::min(count, grains * range / workers * grain);
    const int64_t end = std::min(count, grains * (range + 1) / workers * grain);
    if (begin < end) task.call(task.context, begin, end);
  };
  ParallelForNeighbours(workers, workers, run);
}

void RunItems(int threads, int64_t count, ItemTask task) {
  if (count <= 0) return;
  const int workers = static_cast<int>(std::min<int64_t>(threads, count));
  if (workers <= 1) {
    for (int64_t item = 0; item < count; ++item) task.call(task.context, item, 0);
    return;
  }
  std::atomic<int64_t> next = 0;
  OnWorkers(workers, [&](int worker) {
    for (int64_t item = next++; item < count; item = next++) {
      task.call(task.context, item, worker);
    }
  });
}

void RunNeighbours(int threads, int64_t count, ItemTask task) {
  const int workers = static_cast<int>(std::min<int64_t>(threads, count));
  if (workers <= 1) return RunItems(1, count, task);
  std::vector<Share> shares(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w) {
    shares[static_cast<size_t>(w)].Set(static_cast<uint64_t>(count * w / workers),
                                       static_cast<uint64_t>(count * (w + 1) / workers));
  }
  // The shares of workers that are not there are taken by those that are.
  OnWorkers(workers, [&](int worker) {
    for (int i = 0; i < workers; ++i) {
      Share& share = shares[static_cast<size_t>((worker + i) % workers)];
      for (int64_t item = share.Take(i == 0); item >= 0; item = share.Take(i == 0)) {
        task.call(task.context, item, worker);
      }
    }
  });
}

}  // namespace trimtab

#include "engine/device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/base/units.h"

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

}  // namespace

void UseThreads(int threads) { omp_set_num_threads(threads); }

void RunRanges(int threads, int64_t count, int64_t grain, RangeTask task) {
  if (count <= 0) return;
  const int64_t grains = CeilDiv(count, grain);
  const int workers = static_cast<int>(std::min<int64_t>(threads, grains));
  if (workers <= 1) {
    task.call(task.context, 0, count);
    return;
  }
#pragma omp parallel num_threads(workers)
  {
    // The runtime may give fewer workers than asked for; the split follows what it gave.
    const int64_t given = omp_get_num_threads();
    const int64_t worker = omp_get_thread_num();
    const int64_t begin = std::min(count, grains * worker / given * grain);
    const int64_t end = std::min(count, grains * (worker + 1) / given * grain);
    if (begin < end) task.call(task.context, begin, end);
  }
}

void RunItems(int threads, int64_t count, ItemTask task) {
  if (count <= 0) return;
  const int workers = static_cast<int>(std::min<int64_t>(threads, count));
  if (workers <= 1) {
    for (int64_t item = 0; item < count; ++item) task.call(task.context, item, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
  for (int64_t item = 0; item < count; ++item) {
    task.call(task.context, item, omp_get_thread_num());
  }
}

void RunNeighbours(int threads, int64_t count, ItemTask task) {
  const int workers = static_cast<int>(std::min<int64_t>(threads, count));
  if (workers <= 1) return RunItems(1, count, task);
  std::vector<Share> shares(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w) {
    shares[static_cast<size_t>(w)].Set(static_cast<uint64_t>(count * w / workers),
                                       static_cast<uint64_t>(count * (w + 1) / workers));
  }
#pragma omp parallel num_threads(workers)
  {
    // The shares of workers that the runtime does not give are taken by those that it gives.
    const int worker = omp_get_thread_num();
    for (int i = 0; i < workers; ++i) {
      Share& share = shares[static_cast<size_t>((worker + i) % workers)];
      for (int64_t item = share.Take(i == 0); item >= 0; item = share.Take(i == 0)) {
        task.call(task.context, item, worker);
      }
    }
  }
}

}  // namespace trimtab

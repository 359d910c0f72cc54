#include "engine/device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>

#include "engine/base/units.h"

namespace trimtab {

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

}  // namespace trimtab

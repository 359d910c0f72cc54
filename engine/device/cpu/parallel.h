// Worker threads of one cpu rank.
//
// The pool is the OpenMP runtime's, which oneDNN uses too: a rank's matrix products and its other
// kernels share the same workers. Each rank is a thread of its own with a pool of its own; a rank
// with one worker never enters a parallel region, so such ranks run side by side undisturbed.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace trimtab {

/// A call without ownership: `context` is the callable, `call` knows its type.
struct PlainTask {
  void (*call)(void* context);
  void* context;
};
struct RangeTask {
  void (*call)(void* context, int64_t begin, int64_t end);
  void* context;
};
struct ItemTask {
  void (*call)(void* context, int64_t item, int worker);
  void* context;
};

void RunWithWorkerPool(int threads, const PlainTask& task);
void RunRanges(int threads, int64_t count, int64_t grain, RangeTask task);
void RunItems(int threads, int64_t count, ItemTask task);
void RunNeighbours(int threads, int64_t count, ItemTask task);

/// Tells libraries that open their own parallel regions (oneDNN) how many workers the calling
/// rank's thread may use. Other ranks' threads are not affected.
void UseThreads(int threads);

/// Calls fn(begin, end) over [0, count), one contiguous range per worker, boundaries at multiples
/// of `grain`. Returns when all are done. What fn computes must not depend on the boundaries.
template <typename Fn>
void ParallelFor(int threads, int64_t count, int64_t grain, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  RunRanges(threads, count, grain,
            {[](void* context, int64_t begin, int64_t end) {
               (*static_cast<Callable*>(context))(begin, end);
             },
             const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
}

/// Calls fn(item, worker) for each item of [0, count), handed out one by one to workers
/// 0 .. threads-1 as they come free: for items of unequal length.
template <typename Fn>
void ParallelForEach(int threads, int64_t count, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  RunItems(threads, count,
           {[](void* context, int64_t item, int worker) {
              (*static_cast<Callable*>(context))(item, worker);
            },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
}

/// As ParallelForEach, of items that are quickest one after the other: each worker begins with a
/// contiguous share of its own, front to back, and goes on with what is left at the back of
/// another's.
template <typename Fn>
void ParallelForNeighbours(int threads, int64_t count, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  RunNeighbours(threads, count,
                {[](void* context, int64_t item, int worker) {
                   (*static_cast<Callable*>(context))(item, worker);
                 },
                 const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
}

/// Calls fn() on the calling thread, with `threads` workers at hand (worker_pool.h): for many loops
/// with little between them. What fn throws is thrown. Libraries with parallel regions of their own
/// run on one thread meanwhile.
template <typename Fn>
void WithWorkerPool(int threads, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  RunWithWorkerPool(threads, {[](void* context) { (*static_cast<Callable*>(context))(); },
                              const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
}

}  // namespace trimtab

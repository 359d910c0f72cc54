#include "engine/device/cpu/worker_pool.h"

#include <omp.h>

namespace trimtab {
namespace {

// A look takes some 30 ns. Who sleeps gives its core away, and where others want it gets it back
// after milliseconds: so it looks for about as long. Where workers are more than cores, one of them
// waits for another's core.
constexpr int kLooks = 100000;
constexpr int kLooksOfTooMany = 100;

std::atomic<int> members = 0;  // of all crews

int LooksWith(int all) {
  static const int cores = omp_get_num_procs();
  return all <= cores ? kLooks : kLooksOfTooMany;
}

// Tells the core that it only waits.
void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `arrived(word)`, which it is until then.
template <typename Arrived>
void Await(const std::atomic<uint32_t>& word, int looks, Arrived arrived) {
  for (int look = 0; look < looks; ++look) {
    if (arrived(word.load(std::memory_order_acquire))) return;
    Relax();
  }
  for (uint32_t now = word; !arrived(now); now = word) word.wait(now);
}

}  // namespace

WorkerPool::WorkerPool(int most) : most_(most), looks_(LooksWith(members += most)) {}

WorkerPool::~WorkerPool() { members -= most_; }

void WorkerPool::Begin(int workers, const WorkerTask& task) {
  workers_ = workers;
  task_ = task;
  left_ = 0;
  entered_ = Of(begun_ + 1);
  ++begun_;
  begun_.notify_all();  // calls the kernel only when somebody sleeps
}

bool WorkerPool::Enter(uint32_t loop) {
  uint64_t entered = entered_;
  do {
    if (entered >= Of(loop) + kOver || entered < Of(loop)) return false;
  } while (!entered_.compare_exchange_weak(entered, entered + 1));
  return true;
}

void WorkerPool::Leave() {
  ++left_;
  left_.notify_one();
}

void WorkerPool::Run(int workers, const WorkerTask& task) {
  Begin(workers, task);
  task.call(task.context, 0);
  const auto followers = static_cast<uint32_t>(entered_.fetch_or(kOver) - Of(begun_));
  Await(left_, looks_, [followers](uint32_t left) { return left == followers; });
}

void WorkerPool::Dismiss() { Begin(0, {}); }

void WorkerPool::Follow(int worker) {
  for (uint32_t last = 0;;) {
    Await(begun_, looks_, [last](uint32_t begun) { return begun != last; });
    last = begun_;
    if (!Enter(last)) continue;
    if (task_.call == nullptr) return;
    if (worker < workers_) task_.call(task_.context, worker);
    Leave();
  }
}

}  // namespace trimtab

#include "engine/device/cpu/crew.h"

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

// Returns when `word` is `value`, which it stays until then.
void Await(const std::atomic<uint32_t>& word, uint32_t value, int looks) {
  for (int look = 0; look < looks; ++look) {
    if (word.load(std::memory_order_acquire) == value) return;
    Relax();
  }
  for (uint32_t now = word; now != value; now = word) word.wait(now);
}

}  // namespace

Crew::Crew(int most) : most_(most), looks_(LooksWith(members += most)) {}

Crew::~Crew() { members -= most_; }

void Crew::Begin(int workers, const WorkerTask& task) {
  workers_ = workers;
  task_ = task;
  ++begun_;
  begun_.notify_all();  // calls the kernel only when somebody sleeps
}

void Crew::Run(int workers, const WorkerTask& task) {
  Begin(workers, task);
  task.call(task.context, 0, workers);
  finished_ += static_cast<uint32_t>(size_ - 1);
  Await(done_, finished_, looks_);
}

void Crew::Dismiss() { Begin(0, {}); }

void Crew::Follow(int worker) {
  for (uint32_t loop = 1;; ++loop) {
    Await(begun_, loop, looks_);
    if (task_.call == nullptr) return;
    if (worker < workers_) task_.call(task_.context, worker, workers_);
    ++done_;
    done_.notify_one();
  }
}

}  // namespace trimtab

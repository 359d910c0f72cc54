#include "engine/device/cuda/watched_wait.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace trimtab {
namespace {

constexpr int kClosePolls = 2000;  // milliseconds
constexpr auto kSleep = std::chrono::microseconds(50);

}  // namespace

void WatchedWait(const std::function<bool()>& done, WaitWatch& watch) {
  for (int i = 0; i < kClosePolls; ++i) {
    if (done()) return;
    sched_yield();
  }
  watch.Begin();
  const struct Ending {
    WaitWatch& watch;
    ~Ending() { watch.End(); }
  } ending{watch};
  while (!done()) {
    watch.Check();
    std::this_thread::sleep_for(kSleep);
  }
}

}  // namespace trimtab

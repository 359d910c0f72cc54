#include "tests/engine/comm/watchdog.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace trimtab {

Watchdog::Watchdog(std::string what, double limit_s)
    : thread_([this, what = std::move(what), limit_s] {
        std::unique_lock lock(mutex_);
        const auto limit = std::chrono::duration<double>(limit_s);
        if (done_changed_.wait_for(lock, limit, [this] { return done_; })) return;
        fmt::print(stderr, "watchdog: {} still runs after {} s\n", what, limit_s);
        std::_Exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_one();
  thread_.join();
}

}  // namespace trimtab

// Watchdog: makes a hang a failure.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace trimtab {

/// Ends the process with a message unless it is destroyed in time.
class Watchdog {
 public:
  explicit Watchdog(std::string what, double limit_s = 30.0);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace trimtab

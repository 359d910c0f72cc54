// ConnectionThreads: a thread for each connection of a server, as long as there are not too many.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"

namespace trimtab {

/// The library's own pool has all its threads from the start, and a connection holds one from its
/// first byte to its last: as many clients that say nothing would keep everyone else out. Here a
/// connection that finds no free thread gets a new one, up to `most`; further ones wait.
class ConnectionThreads : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(size_t most) : most_(most) {}
  ~ConnectionThreads() override { shutdown(); }

  /// Serves a connection. Throws std::system_error where not even one thread can be started.
  void enqueue(std::function<void()> connection) override;
  /// Returns when all connections have been served.
  void shutdown() override;

 private:
  void Serve();

  const size_t most_;
  Mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> waiting_ TRIMTAB_GUARDED_BY(mutex_);
  size_t free_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  bool ends_ TRIMTAB_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab

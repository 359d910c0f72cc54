#include "tools/serve/connection_threads.h"

#include <system_error>
#include <utility>

namespace trimtab {

void ConnectionThreads::enqueue(std::function<void()> connection) {
  const MutexLock lock(mutex_);
  waiting_.push_back(std::move(connection));
  if (waiting_.size() > free_ && threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { Serve(); });
    } catch (const std::system_error&) {
      // The machine gives no more threads: those that there are come to it.
      if (threads_.empty()) throw;
    }
  }
  news_.notify_one();
}

void ConnectionThreads::Serve() {
  MutexLock lock(mutex_);
  while (true) {
    ++free_;
    lock.Wait(news_, [this]() TRIMTAB_REQUIRES(mutex_) { return ends_ || !waiting_.empty(); });
    --free_;
    if (waiting_.empty()) return;
    const std::function<void()> connection = std::move(waiting_.front());
    waiting_.pop_front();
    lock.Unlock();
    connection();
    lock.Lock();
  }
}

void ConnectionThreads::shutdown() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    threads.swap(threads_);
  }
  news_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trimtab

// Counted: how many of something there are.
#pragma once

#include <atomic>
#include <cstdint>

namespace trimtab {

/// One more in a count, as long as this is there. Wakes who waits for the count to change.
class Counted {
 public:
  explicit Counted(std::atomic<int64_t>& count) : count_(count), now_(++count) {}
  ~Counted() {
    --count_;
    count_.notify_all();
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int64_t now() const { return now_; }

 private:
  std::atomic<int64_t>& count_;
  int64_t now_;
};

}  // namespace trimtab

// Runs ranks as threads over one in-process group, for tests of the communicator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/communicator.h"

namespace trimtab {

/// Ends the process with a message unless it is destroyed in time: a hang becomes a failure.
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

/// How the body of one rank ended.
struct RankEnd {
  bool threw = false;
  bool comm_error = false;  // it was a CommError
  std::string what;
};

/// Runs `body` on `size` threads, each with its communicator and its own cpu device, and returns
/// how each ended. A rank's communicator goes away when its body returns.
std::vector<RankEnd> RunRanks(int size,
                              const std::function<void(Communicator& comm, Device& device)>& body);

/// As RunRanks, and fails the test if a rank threw.
void RunRanksCleanly(int size, const std::function<void(Communicator& comm, Device& device)>& body);

/// A tensor of [count] with elements of guard bytes on both sides, in one allocation.
class GuardedTensor {
 public:
  GuardedTensor(Device& device, int64_t count, DType dtype);

  Tensor& tensor() { return tensor_; }
  /// True while nothing was written before or behind the tensor.
  bool Intact() const;

 private:
  Tensor whole_;
  Tensor tensor_;
};

/// Element i as a double; exact for every dtype except large int64.
double Get(const Tensor& tensor, int64_t i);
void Set(Tensor& tensor, int64_t i, double value);

}  // namespace trimtab

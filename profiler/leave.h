// How a driver that goes on sends away the workers of a killed one that nothing else reaches. Of
// those that a scheduler started some hear neither the end of their stdin nor a signal, and would
// hold the results file, and the memory of their GPU, for as long as their job lasts. A file beside
// the results file asks them to leave; every worker looks for it.
#pragma once

#include <atomic>
#include <stop_token>
#include <string>
#include <thread>

namespace trimtab {

/// As long as it lives, the workers of the results file are asked to leave.
class LeaveRequest {
 public:
  /// Throws StorageError.
  explicit LeaveRequest(const std::string& results_path);
  ~LeaveRequest();
  LeaveRequest(const LeaveRequest&) = delete;
  LeaveRequest& operator=(const LeaveRequest&) = delete;

 private:
  const std::string path_;
};

/// A worker's: ends its process soon after it is asked to leave. A visit has some time to end
/// before.
class LeaveWatch {
 public:
  explicit LeaveWatch(const std::string& results_path);

  /// From now on a visit is under way, whose result is not written yet; or none is.
  void SetVisiting(bool visiting) { visiting_ = visiting; }

 private:
  void Watch(const std::stop_token& stop) const;

  const std::string path_;
  std::atomic<bool> visiting_ = false;
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace trimtab

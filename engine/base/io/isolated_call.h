// Work in a child process: what crashes, hangs or prints there does no harm here.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace trimtab {

/// For code that cannot be trusted, such as the constructors of a library that may be broken.
class IsolatedCall {
 public:
  struct Result {
    std::string text = {};     // what the work returned
    std::string failure = {};  // why it returned nothing, in a few words; empty when it did
  };

  /// Starts `work` in a child that is a copy of this process, with its stdin, stdout and stderr on
  /// /dev/null. Only the calling thread goes on in the child, so `work` must not wait for others.
  explicit IsolatedCall(const std::function<std::string()>& work);
  /// Ends the child if it still runs.
  ~IsolatedCall();
  IsolatedCall(const IsolatedCall&) = delete;
  IsolatedCall& operator=(const IsolatedCall&) = delete;

  /// Waits for the result until `deadline`, and ends a child that takes longer. Call it once.
  Result Wait(std::chrono::steady_clock::time_point deadline);

 private:
  /// The child's exit status, as of waitpid.
  int Reap(bool kill_it);

  pid_t child_ = -1;
  int pipe_ = -1;
  std::string failure_;
};

}  // namespace trimtab

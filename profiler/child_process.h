// One child process: started in a process group of its own, watched, limited, killed with its
// driver.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trimtab {

/// How a child ended.
struct ChildExit {
  int exit_code = 0;       // 128 + n when signal n ended it
  int signal = 0;          // 0 = it exited by itself
  bool timed_out = false;  // it was killed for taking longer than allowed
  bool cancelled = false;  // it was killed because the caller asked
  double seconds = 0;
};

/// Runs `program` with `arguments` (argv[1] on) and waits for its end. stdout and stderr are
/// appended to `log_path`. The kernel kills it when the calling thread ends, and picks it first
/// when the machine runs out of memory. `time_limit_s` 0 = none. Throws EnvironmentError (cannot be
/// started), StorageError (log cannot be opened).
ChildExit RunChild(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& log_path, double time_limit_s,
                   const std::function<bool()>& cancelled);

}  // namespace trimtab

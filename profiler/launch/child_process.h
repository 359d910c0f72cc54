// One child process: started in a process group of its own, told lines on its stdin, killed with
// its driver.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trimtab {

/// How a child ended.
struct ChildExit {
  int exit_code = 0;  // 128 + n when signal n ended it
  int signal = 0;     // 0 = it exited by itself
};

class ChildProcess {
 public:
  /// Starts `program` with `arguments` (argv[1] on). stdout and stderr are appended to `log_path`.
  /// The kernel kills it when the calling thread ends, and picks it first when the machine runs out
  /// of memory. Throws EnvironmentError (cannot be started), StorageError (log cannot be opened).
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
               const std::string& log_path);
  /// Kills it and whatever it started, if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Writes a line to its stdin. No effect on a child that no longer reads.
  void Tell(const std::string& line);
  /// Closes its stdin.
  void Hush();
  /// True once it has ended, until then false.
  bool HasEnded() const;
  /// See DescribeProcesses.
  std::string Doing() const;
  /// Kills it and whatever it started.
  void Kill();
  /// Waits for its end, then kills whatever it left behind.
  ChildExit Wait();

 private:
  pid_t pid_ = 0;  // 0 = ended and reaped
  int stdin_ = -1;
  ChildExit exit_;
};

}  // namespace trimtab

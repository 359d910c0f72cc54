// ChildRun: a run that is a child of this process and nothing besides.
#pragma once

#include <string>
#include <vector>

#include "profiler/launch/launcher.h"

namespace trimtab {

class ChildRun : public LaunchedRun {
 public:
  /// `command`: argv, its program an absolute path.
  ChildRun(const std::vector<std::string>& command, const std::string& log_path);

  void Tell(const std::string& line) override { child_.Tell(line); }
  State Poll() override { return child_.HasEnded() ? State::kEnded : State::kRunning; }
  std::string Doing() const override { return child_.Doing(); }
  void Cancel() override { child_.Kill(); }
  ChildExit Wait() override { return child_.Wait(); }
  LaunchEnd Classify(const std::string& log) override;

 private:
  ChildProcess child_;
  int64_t oom_kills_;  // on this machine, when it started
};

}  // namespace trimtab

// CommandOutput: what a short command prints, with a limit on how long it may take.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

struct CommandOutput {
  int exit_code = -1;  // 128 + n when signal n ended it; -1: it was killed after the limit
  std::string out;     // at most 1 MiB of stdout
  std::string error;   // the same of stderr
};

/// Runs `argv` in the C locale with nothing on its stdin, and waits for its end. The program is
/// looked up on PATH. Throws EnvironmentError when it cannot be started.
CommandOutput ReadCommand(const std::vector<std::string>& argv, double limit_s);

/// The first line that says something.
std::string FirstLine(const std::string& text);

}  // namespace trimtab

// Ranks that other processes run, in the foreground: as if they were this process.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

/// Runs `argv`, whose first word is a path, to its end, on this process's streams, and returns the
/// exit code. The first SIGINT or SIGTERM is passed on as SIGUSR1, which mpirun hands to its ranks:
/// they finish the step, save and end with 0 (signals.h), and this returns 128 + n. The second is
/// passed on as SIGTERM, on which mpirun kills them within a second, the third as SIGKILL.
/// Throws EnvironmentError where it cannot be started.
int RunInForeground(std::vector<std::string> argv);

}  // namespace trimtab

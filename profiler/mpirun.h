// mpirun: how this program starts the ranks of a run as processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trimtab {

/// Where the ranks of a measurement or a training run live.
enum class Launcher { kInproc, kMpirun };

/// The command, mpirun's path first, that starts `ranks` processes of `program` on this machine;
/// the program's own arguments follow. Throws EnvironmentError when there is no mpirun on PATH.
std::vector<std::string> MpirunCommand(int64_t ranks,
                                       const std::string& program = "/proc/self/exe");

}  // namespace trimtab

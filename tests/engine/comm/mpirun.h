// Starts programs under mpirun, for tests.
#pragma once

#include <string>

namespace trimtab {

/// Why no program can be started under mpirun here; empty when it can.
std::string WhyNoMpirun();

struct MpirunResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr of all processes
};

/// The shell's line that is `mpirun -n ranks command`, with `environment` ("A=1 B=2") before it.
std::string MpirunLine(int ranks, const std::string& command, const std::string& environment = "");

/// Runs it.
MpirunResult RunUnderMpirun(int ranks, const std::string& command,
                            const std::string& environment = "");

/// Whether the command line of some process has `word` in it.
bool AnyProcessHas(const std::string& word);

}  // namespace trimtab

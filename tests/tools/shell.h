// Runs a command of the shell and captures what it prints.
#pragma once

#include <string>

namespace trimtab {

struct Outcome {
  int status = -1;     // the exit code; -1 when it did not start or a signal ended it
  std::string output;  // both streams
};

Outcome Shell(const std::string& command);

}  // namespace trimtab

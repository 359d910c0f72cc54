// Where a shared object is that the program loads on demand.
#pragma once

#include <string>

namespace trimtab {

struct BackendFile {
  std::string path;    // of the file; empty when there is none
  std::string chosen;  // what the environment variable says; empty when it is not set
};

/// libtrimtab_<name>.so: $TRIMTAB_<NAME>_BACKEND if set, else the file beside the program, else
/// the one among the files that Bazel places for it.
BackendFile FindBackendFile(const std::string& name);

}  // namespace trimtab

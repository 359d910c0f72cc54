// RunFailure: why a run of several processes failed, as all of them come to know it.
#pragma once

#include <string>

#include "engine/base/error.h"

namespace trimtab {

struct RunFailure {
  ExitCode code = ExitCode::kInternal;
  bool out_of_memory = false;
  bool consequence = false;  // of another rank's failure
  int rank = 0;              // on which it happened
  std::string message = {};
};

}  // namespace trimtab

// --launcher of the commands that run one configuration.
#pragma once

#include <cstdint>
#include <string>

#include "tools/flags.h"

namespace trimtab {

class LauncherFlag {
 public:
  void Declare(FlagSet& flags);

  /// With `--launcher mpirun` this process becomes an mpirun that starts `ranks` processes of this
  /// command, with the same flags but this one, and the call does not return. Otherwise it does
  /// nothing. Throws EnvironmentError when there is no mpirun, UsageError under mpirun.
  void StartRanks(int64_t ranks) const;

 private:
  std::string launcher_ = "inproc";
};

}  // namespace trimtab

#include <unistd.h>

#include <cstdlib>

#include "tools/build_commit.h"
#include "tools/cli/command.h"
#include "tools/cli/version.h"

namespace {

/// Idle OpenMP workers spin, by default for about 15 ms, before they sleep. On a machine with other
/// work to do they thereby hold up the very threads they wait for: a step took 2.5 times as long.
/// A short spin costs nothing on an idle machine. The runtime reads its settings before main, so
/// the program starts itself once more with them; should that fail, it goes on as it is.
void LimitSpinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/1);
  execv("/proc/self/exe", argv);
}

}  // namespace

int main(int argc, char** argv) {
  LimitSpinning(argv);
  trimtab::SetBuildCommit(trimtab::BuildCommit());
  return trimtab::RunCommand(argc, argv);
}

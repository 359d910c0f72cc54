// What a cluster does to searches and training runs, each on a real Slurm of this machine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "engine/base/io/backend_file.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

TEST(SlurmSituations, EndAsTheyShould) {
  const std::string why_not = Shell("tools/scripts/slurm_rig check").output;
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  setenv("TRIMTAB", std::filesystem::absolute("tools/trimtab").c_str(), 1);
  setenv("TRIMTAB_MPI_BACKEND", std::filesystem::absolute(FindBackendFile("mpi").path).c_str(), 1);
  const Outcome outcome = Shell("tools/scripts/slurm_situations");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace
}  // namespace trimtab

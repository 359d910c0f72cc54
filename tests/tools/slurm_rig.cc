#include "tests/tools/slurm_rig.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "engine/base/io/backend_file.h"
#include "tests/engine/comm/mpirun.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

constexpr char kScript[] = "tools/scripts/slurm_rig";

}  // namespace

SlurmRig::SlurmRig() {
  why_not_ = Shell(fmt::format("{} check", kScript)).output;
  if (why_not_.empty()) why_not_ = WhyNoMpirun();
  if (!why_not_.empty()) return;
  std::string pattern = "/tmp/trimtab_slurm_XXXXXX";  // a socket's path must be short
  folder_ = mkdtemp(pattern.data());
  // Not through a pipe, which the daemons would hold.
  const std::string output = folder_ + "/start";
  if (std::system(fmt::format("{0} start {1}/rig > {2} 2>&1", kScript, folder_, output).c_str()) !=
      0) {
    fmt::print(stderr, "{}\n", ReadWholeFile(output));
    std::abort();
  }
  setenv("SLURM_CONF", (folder_ + "/rig/slurm.conf").c_str(), 1);
  setenv("TRIMTAB_MPI_BACKEND", std::filesystem::absolute(FindBackendFile("mpi").path).c_str(), 1);
  // What the test runner tells this program is not meant for the ones it starts.
  for (const char* name : {"XML_OUTPUT_FILE", "TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS"}) {
    unsetenv(name);
  }
}

SlurmRig::~SlurmRig() {
  if (folder_.empty()) return;
  Shell(fmt::format("{} stop {}/rig", kScript, folder_));
  std::filesystem::remove_all(folder_);
}

std::string SlurmRig::Queue() { return Shell("squeue --noheader --format='%i %j %T'").output; }

bool SlurmRig::Emptied() {
  return WaitFor(std::chrono::seconds(20), [] { return Queue().empty(); });
}

void SlurmRig::RestartController(double pause_s) const {
  const std::string pid = ReadWholeFile(folder_ + "/rig/slurmctld.pid");
  kill(std::stoi(pid), SIGKILL);
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  // Without -c: it knows its jobs again.
  if (std::system("PATH=$PATH:/usr/sbin slurmctld > /dev/null 2>&1") != 0) std::abort();
  // A controller that has forgotten a step takes its node out of service, which a person puts back.
  // Of nodes in service Slurm refuses that.
  [[maybe_unused]] const int done =
      std::system("scontrol update NodeName=ALL State=RESUME > /dev/null 2>&1");
}

}  // namespace trimtab

#include "tools/launcher_flag.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "profiler/mpirun.h"

namespace trimtab {
namespace {

constexpr char kFlag[] = "--launcher";

/// The flags this process was started with, without --launcher.
std::vector<std::string> OtherArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::string argument;
  std::getline(file, argument, '\0');  // the program
  while (std::getline(file, argument, '\0')) {
    if (argument == kFlag) {
      std::getline(file, argument, '\0');  // its value
    } else if (!argument.starts_with(std::string(kFlag) + "=")) {
      arguments.push_back(argument);
    }
  }
  return arguments;
}

}  // namespace

void LauncherFlag::Declare(FlagSet& flags) {
  flags.Choice(kFlag, launcher_, {"inproc", "mpirun"},
               "run ranks as threads, or as processes that mpirun starts on this machine");
}

void LauncherFlag::StartRanks(int64_t ranks) const {
  if (launcher_ != "mpirun") return;
  if (FindMpiLaunch()) {
    throw UsageError("mpirun started this process already; leave out --launcher mpirun");
  }
  std::vector<std::string> command = MpirunCommand(ranks);
  for (std::string& argument : OtherArguments()) command.push_back(std::move(argument));
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  throw EnvironmentError(fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
}

}  // namespace trimtab

#include "profiler/mpirun.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::string FindOnPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) != 0) continue;
    // Open MPI takes the folder above for its place, and refuses the root, which is above a /bin
    // that is a link to /usr/bin.
    std::error_code error;
    return (std::filesystem::canonical(folder, error) / name).string();
  }
  throw EnvironmentError(
      fmt::format("no {} on PATH; expected Open MPI's (Debian: openmpi-bin)", name));
}

}  // namespace

std::vector<std::string> MpirunCommand(int64_t ranks, const std::string& program) {
  std::error_code error;
  // Of this process, not of the mpirun that will read it.
  const std::string path = std::filesystem::canonical(program, error).string();
  if (error) throw EnvironmentError(fmt::format("{}: {}", program, error.message()));
  // A rank shares its cores among threads of its own, so nobody is bound to one; and a machine may
  // have fewer cores than a layout has ranks, as with in-process ranks.
  std::vector<std::string> command = {FindOnPath("mpirun"), "-n",        std::to_string(ranks),
                                      "--oversubscribe",    "--bind-to", "none"};
  if (::geteuid() == 0) command.push_back("--allow-run-as-root");
  command.push_back(path);
  return command;
}

}  // namespace trimtab

#include "tests/engine/comm/mpirun.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "engine/base/io/backend_file.h"

namespace trimtab {

std::string WhyNoMpirun() {
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) return "no mpirun on PATH";
  if (FindBackendFile("mpi").path.empty()) return "this build has no MPI";
  return "";
}

std::string MpirunLine(int ranks, const std::string& command, const std::string& environment) {
  // What the test runner tells this program is not meant for the ones it starts.
  return fmt::format(
      "env -u XML_OUTPUT_FILE -u TEST_SHARD_INDEX -u TEST_TOTAL_SHARDS -u TEST_SHARD_STATUS_FILE "
      "TRIMTAB_MPI_BACKEND='{}' {} mpirun --quiet --oversubscribe --bind-to none {} -n {} {}",
      std::filesystem::absolute(FindBackendFile("mpi").path).string(), environment,
      ::geteuid() == 0 ? "--allow-run-as-root" : "", ranks, command);
}

MpirunResult RunUnderMpirun(int ranks, const std::string& command, const std::string& environment) {
  const std::string line = MpirunLine(ranks, command, environment) + " 2>&1";
  MpirunResult result;
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  for (size_t count = 0; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    result.output.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

bool AnyProcessHas(const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string line;
    std::getline(file, line);
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace trimtab

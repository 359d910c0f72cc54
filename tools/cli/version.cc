#include "tools/cli/version.h"

#include <fmt/format.h>

#include "engine/base/io/backend_file.h"

namespace trimtab {
namespace {

std::string& BuildCommit() {
  static std::string commit;
  return commit;
}

}  // namespace

void SetBuildCommit(const std::string& commit) { BuildCommit() = commit; }

std::string VersionText() {
  std::string backends = "cpu, meta";
  std::string files;
  for (const char* name : {"cuda", "mpi"}) {
    const BackendFile file = FindBackendFile(name);
    if (file.path.empty()) {
      files += fmt::format("{:<8}  not built or not installed\n", name);
      continue;
    }
    backends += fmt::format(", {}", name);
    files += fmt::format("{:<8}  {}\n", name, file.path);
  }
  return fmt::format("trimtab {}\ncommit    {}\nbackends  {}\n{}", kVersion,
                     BuildCommit().empty()
                         ? "not recorded: needs --config=release, in a git checkout"
                         : BuildCommit(),
                     backends, files);
}

}  // namespace trimtab

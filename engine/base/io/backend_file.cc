#include "engine/base/io/backend_file.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace trimtab {

namespace fs = std::filesystem;

BackendFile FindBackendFile(const std::string& name) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string file = fmt::format("libtrimtab_{}.so", name);

  BackendFile found;
  std::vector<fs::path> paths;
  std::error_code ignored;
  if (const char* chosen = std::getenv(fmt::format("TRIMTAB_{}_BACKEND", upper).c_str())) {
    found.chosen = chosen;
    paths = {chosen};
  } else {
    const std::string runfile = "trimtab/engine/" + file;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
    if (!program.empty()) {
      paths.push_back(program.parent_path() / file);
      paths.push_back(fs::path(program.string() + ".runfiles") / runfile);
    }
    if (const char* runfiles = std::getenv("RUNFILES_DIR")) {
      paths.push_back(fs::path(runfiles) / runfile);
    }
  }
  for (const fs::path& path : paths) {
    if (!fs::exists(path, ignored)) continue;
    found.path = path.string();
    break;
  }
  return found;
}

}  // namespace trimtab

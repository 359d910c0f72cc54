#include "engine/base/io/scratch_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"

namespace trimtab {

ScratchFolder::ScratchFolder() {
  path_ = (std::filesystem::temp_directory_path() / "trimtab-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw StorageError(fmt::format("{}: cannot be made: {}", path_, std::strerror(errno)));
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trimtab

#include "engine/base/io/atomic_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

AtomicFolder::AtomicFolder(std::string path)
    : path_(WithoutSlashes(std::move(path))), temporary_(path_ + ".tmp") {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path_, error);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(path_, error))) {
    throw StorageError(fmt::format("{}: already exists; expected a new or an empty folder", path_));
  }
  const fs::path parent = fs::path(path_).parent_path();
  error.clear();  // that there is nothing is no error
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot create it: {}", parent.string(), error.message()));
  }
  const bool made = fs::create_directory(temporary_, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot create it: {}", path_, error.message()));
  }
  if (!made) {
    throw StorageError(fmt::format(
        "{}: already exists, as when a run was killed; expected no such file", temporary_));
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::Commit() {
  SyncDirectory(temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw StorageError(fmt::format("{}: cannot put it in place: {}", path_, std::strerror(errno)));
  }
  committed_ = true;
  SyncParentDirectory(path_);
}

}  // namespace trimtab

#include "engine/base/io/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Whether `path` still names the open file, which its last holder removed when it was done.
bool Names(const std::string& path, int fd) {
  struct stat named {};
  struct stat open {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 &&
         named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

}  // namespace

std::unique_ptr<LockFile> LockFile::Take(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot create it: {}", folder.string(), error.message()));
  }
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
      throw StorageError(fmt::format("{}: cannot create it: {}", path, std::strerror(errno)));
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > 0) {
      ::close(fd);
      throw StorageError(fmt::format("{}: is in the way of a lock; expected no such file", path));
    }
    std::unique_ptr<LockFile> lock(new LockFile(fd, path));
    int failed = 0;
    do {
      failed = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed == EWOULDBLOCK || (failed == 0 && !Names(path, fd))) {
      lock->path_.clear();  // another's
      if (failed != 0) return nullptr;
      continue;
    }
    return lock;
  }
}

LockFile::LockFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

LockFile::~LockFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace trimtab

#include "engine/base/io/lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr std::string_view kHolder = "process ";  // what every lock file begins with
constexpr size_t kLongestHolder = 400;

/// Returns the line that the file begins with; empty where it names no holder.
std::string ReadHolder(int fd) {
  std::array<char, kLongestHolder> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view whole(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  if (!whole.starts_with(kHolder)) return "";
  return std::string(whole.substr(0, whole.find('\n')));
}

std::string ThisMachine() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {};
  return host.data();
}

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
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        (status.st_size > 0 && ReadHolder(fd).empty())) {
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
    lock->NameHolder();
    return lock;
  }
}

std::string LockFile::HolderOf(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string holder = ReadHolder(fd);
  ::close(fd);
  return holder;
}

bool LockFile::HolderRuns(const std::string& path) {
  const std::string holder = HolderOf(path);
  if (holder.empty()) return false;
  if (!holder.ends_with(" on " + ThisMachine())) return true;
  pid_t process = 0;
  std::from_chars(holder.data() + kHolder.size(), holder.data() + holder.size(), process);
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

void LockFile::NameHolder() {
  const std::string text = fmt::format("{}{} on {}\n", kHolder, ::getpid(), ThisMachine());
  // The file is never empty in between: another process that opens it would take it for a
  // stranger's. A full disk takes the name, not the lock.
  const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
  [[maybe_unused]] const int cut = ::ftruncate(fd_, written > 0 ? written : 0);
}

LockFile::LockFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

LockFile::~LockFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace trimtab

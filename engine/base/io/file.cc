#include "engine/base/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::string Reason() { return std::strerror(errno); }

[[noreturn]] void ThrowStorage(const std::string& path, const char* action) {
  throw StorageError(fmt::format("{}: cannot {}: {}", path, action, Reason()));
}

}  // namespace

File::File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File File::OpenForReading(const std::string& path) {
  // A pipe would be waited for until somebody writes to it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) throw InputError(fmt::format("{}: cannot open it: {}", path, Reason()));
  File file(fd, path);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw InputError(fmt::format("{}: not a regular file", path));
  }
  return file;
}

File File::Create(const std::string& path, const std::string& name) {
  const std::string& called = name.empty() ? path : name;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) ThrowStorage(called, "create it");
  return File(fd, called);
}

File File::OpenForWriting(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) ThrowStorage(path, "open it for writing");
  return File(fd, path);
}

int64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    throw InputError(fmt::format("{}: cannot read its size: {}", path_, Reason()));
  }
  return status.st_size;
}

void File::Preallocate(int64_t bytes) {
  if (bytes == 0) return;
  if (::fallocate(fd_, 0, 0, bytes) == 0) return;
  // Some file systems cannot reserve; a full disk then shows while writing.
  if (errno != EOPNOTSUPP) ThrowStorage(path_, "reserve its space");
  if (::ftruncate(fd_, bytes) != 0) ThrowStorage(path_, "set its size");
}

void File::Append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ThrowStorage(path_, "write to it");
    data = data.subspan(static_cast<size_t>(written));
  }
}

void File::WriteAt(int64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(fd_, data.data(), data.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ThrowStorage(path_, "write to it");
    data = data.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void File::ReadAt(int64_t offset, std::span<std::byte> data) const {
  while (!data.empty()) {
    const ssize_t count = ::pread(fd_, data.data(), data.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw InputError(fmt::format("{}: cannot read it: {}", path_, Reason()));
    if (count == 0) {
      throw InputError(
          fmt::format("{}: ends at byte {}; expected {} bytes more", path_, offset, data.size()));
    }
    data = data.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

void File::Sync() {
  if (::fsync(fd_) != 0) ThrowStorage(path_, "flush it to the disk");
}

void File::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0) ThrowStorage(path_, "close it");
}

std::string ReadTextFile(const std::string& path, int64_t max_bytes) {
  const File file = File::OpenForReading(path);
  const int64_t size = file.size();
  if (size > max_bytes) {
    throw InputError(fmt::format("{}: {} bytes; expected at most {}", path, size, max_bytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void SyncDirectory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) ThrowStorage(path, "open the folder");
  const int result = ::fsync(fd);
  const int saved_errno = errno;
  ::close(fd);
  errno = saved_errno;
  // Some file systems have no folder to flush and say EINVAL.
  if (result != 0 && errno != EINVAL) ThrowStorage(path, "flush the folder to the disk");
}

void SyncParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  SyncDirectory(parent.empty() ? "." : parent);
}

}  // namespace trimtab

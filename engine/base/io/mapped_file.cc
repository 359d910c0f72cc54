#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/io/file.h"

namespace trimtab {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // A pipe would be waited for until somebody writes to it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    throw InputError(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw InputError(fmt::format("{}: not a regular file", path));
  }
  size_ = static_cast<size_t>(status.st_size);
  void* address = nullptr;
  if (size_ > 0) address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  const int saved_errno = errno;
  ::close(fd);
  if (address == MAP_FAILED) {
    throw InputError(fmt::format("{}: cannot map it: {}", path, std::strerror(saved_errno)));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace trimtab

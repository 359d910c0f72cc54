#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"

namespace trimtab {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

/// Where a file at `path` is put in place: what a link means, never a device or a folder.
std::string PlaceOf(const std::string& path) {
  if (const std::string other = OtherThanAFile(path); !other.empty()) {
    throw StorageError(fmt::format("{}: cannot write to it: it is {}", path, other));
  }
  std::error_code ignored;
  if (!std::filesystem::is_symlink(path, ignored)) return path;
  return std::filesystem::weakly_canonical(path, ignored).string();
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, Writers writers)
    : path_(PlaceOf(path)),
      temporary_(writers == Writers::kOne ? path_ + ".tmp"
                                          : fmt::format("{}.{}.tmp", path_, ::getpid())),
      file_(File::Create(temporary_, path_)) {}

void RequireWritable(const std::string& path) { const AtomicFile removed_again(path); }

std::string OtherThanAFile(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return "";
  return std::filesystem::is_directory(status) ? "a folder" : "no plain file";
}

void RequireNotInput(const std::string& output, const std::string& input) {
  std::error_code ignored;  // what is not there is replaced by nothing
  if (!std::filesystem::equivalent(output, input, ignored)) return;
  throw UsageError(fmt::format("{}: writing it would replace the input {}; expected another place",
                               output, input));
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::Append(std::span<const std::byte> data) {
  Append(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
}

void AtomicFile::Append(std::string_view text) {
  buffer_.append(text);
  if (buffer_.size() >= kBufferBytes) Flush();
}

void AtomicFile::Flush() {
  file_.Append(std::as_bytes(std::span(buffer_)));
  buffer_.clear();
}

void AtomicFile::Sync() {
  if (synced_) return;
  Flush();
  file_.Sync();
  file_.Close();
  synced_ = true;
}

void AtomicFile::Commit() {
  Sync();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw StorageError(fmt::format("{}: cannot put it in place: {}", path_, std::strerror(errno)));
  }
  committed_ = true;
  SyncParentDirectory(path_);
}

}  // namespace trimtab

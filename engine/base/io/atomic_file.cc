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

}  // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), file_(File::Create(path_ + ".tmp")) {}

void RequireWritable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw StorageError(fmt::format("{}: cannot write to it: it is a folder", path));
  }
  const AtomicFile removed_again(path);
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(file_.path().c_str());
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
  if (std::rename(file_.path().c_str(), path_.c_str()) != 0) {
    throw StorageError(fmt::format("{}: cannot put it in place: {}", path_, std::strerror(errno)));
  }
  committed_ = true;
  SyncParentDirectory(path_);
}

}  // namespace trimtab

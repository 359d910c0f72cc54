#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int64_t kSizeBytes = 8;

void CheckRange(const SafetensorsEntry& entry, int64_t element, size_t count) {
  TRIMTAB_ASSERT(entry.dtype == DType::kF32 && element >= 0 &&
                     element + static_cast<int64_t>(count) <= entry.numel(),
                 "elements [{}, +{}) of {} [{}]", element, count, entry.name, entry.numel());
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata,
                                     FileRole role)
    : file_(role == FileRole::kMake ? File::Create(path) : File::OpenForWriting(path)) {
  const std::string header = LayOutSafetensors(entries, metadata);
  data_begin_ = static_cast<int64_t>(header.size());
  if (role == FileRole::kMake) {
    file_.Preallocate(data_begin_ + (entries.empty() ? 0 : entries.back().end));
    file_.WriteAt(0, std::as_bytes(std::span(header)));
  }
  for (SafetensorsEntry& entry : entries) {
    const std::string name = entry.name;
    const bool added = entries_.emplace(name, std::move(entry)).second;
    TRIMTAB_ASSERT(added, "two tensors named {}", name);
  }
}

const SafetensorsEntry& SafetensorsWriter::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  TRIMTAB_ASSERT(found != entries_.end(), "{} has no tensor {}", file_.path(), name);
  return found->second;
}

void SafetensorsWriter::Write(const SafetensorsEntry& entry, int64_t element,
                              std::span<const float> values) {
  CheckRange(entry, element, values.size());
  file_.WriteAt(data_begin_ + entry.begin + element * SizeOf(DType::kF32), std::as_bytes(values));
}

void SafetensorsWriter::Finish() {
  file_.Sync();
  file_.Close();
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(File::OpenForReading(path)) {
  const int64_t file_bytes = file_.size();
  uint64_t header_bytes = 0;
  if (file_bytes < kSizeBytes) {
    throw InputError(
        fmt::format("{}: {} bytes; expected a header size of {}", path, file_bytes, kSizeBytes));
  }
  file_.ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  const int64_t limit = std::min(file_bytes - kSizeBytes, kMaxSafetensorsHeaderBytes);
  if (header_bytes > static_cast<uint64_t>(limit)) {
    throw InputError(
        fmt::format("{}: header of {} bytes; expected at most {}", path, header_bytes, limit));
  }
  std::string header(static_cast<size_t>(header_bytes), '\0');
  file_.ReadAt(kSizeBytes, std::as_writable_bytes(std::span(header)));
  data_begin_ = kSizeBytes + static_cast<int64_t>(header_bytes);
  for (SafetensorsEntry& entry : ParseSafetensorsHeader(header, file_bytes - data_begin_, path)) {
    const std::string name = entry.name;
    entries_.emplace(name, std::move(entry));
  }
}

const SafetensorsEntry& SafetensorsReader::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw InputError(fmt::format("{}: has no tensor '{}'", file_.path(), name));
  }
  return found->second;
}

void SafetensorsReader::Read(const SafetensorsEntry& entry, int64_t element,
                             std::span<float> values) const {
  CheckRange(entry, element, values.size());
  file_.ReadAt(data_begin_ + entry.begin + element * SizeOf(DType::kF32),
               std::as_writable_bytes(values));
}

}  // namespace trimtab

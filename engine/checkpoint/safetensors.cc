#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/base/float8.h"
#include "engine/checkpoint/tile_sums.h"

namespace trimtab {
namespace {

constexpr int64_t kSizeBytes = 8;

void CheckRange(const SafetensorsEntry& entry, int64_t element, size_t count, int64_t stride) {
  const int64_t last = element + (static_cast<int64_t>(count) - 1) * stride;
  TRIMTAB_ASSERT(element >= 0 && stride >= 1 && (count == 0 || last < entry.numel()),
                 "elements {} to {} of {} [{}]", element, last, entry.name, entry.numel());
}

template <typename Stored, typename ToFloat>
void Widen(const std::byte* from, int64_t stride, std::span<float> values, const ToFloat& widen) {
  for (float& value : values) {
    Stored stored;
    std::memcpy(&stored, from, sizeof(stored));
    value = widen(stored);
    from += stride * static_cast<int64_t>(sizeof(stored));
  }
}

/// The bytes of `values` in a type of fewer bits.
template <typename Stored, typename Round>
std::vector<std::byte> Narrow(std::span<const float> values, const Round& round) {
  std::vector<Stored> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), round);
  const auto bytes = std::as_bytes(std::span(rounded));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> NarrowTo(DType dtype, std::span<const float> values) {
  switch (dtype) {
    case DType::kBf16:
      return Narrow<uint16_t>(values, [](float value) { return FloatToBf16(value); });
    case DType::kF16:
      return Narrow<uint16_t>(values, [](float value) { return FloatToF16(value); });
    case DType::kF8E4M3:
      return Narrow<uint8_t>(values, [](float value) { return FloatToE4M3(value); });
    case DType::kI8:
      return Narrow<int8_t>(values, [](float value) { return static_cast<int8_t>(value); });
    case DType::kU8:
      return Narrow<uint8_t>(values, [](float value) { return static_cast<uint8_t>(value); });
    default:
      break;
  }
  TRIMTAB_ASSERT(false, "{} is not written", Name(dtype));
  return {};
}

}  // namespace

int64_t SafetensorsEntry::numel() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  return elements;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata,
                                     FileRole role, Checksums checksums)
    : file_(role == FileRole::kMake ? File::Create(path) : File::OpenForWriting(path)),
      header_(LayOutSafetensors(entries, metadata)) {
  file_bytes_ = std::ssize(header_) + (entries.empty() ? 0 : entries.back().end);
  if (role == FileRole::kMake) {
    file_.Preallocate(file_bytes_);
    file_.WriteAt(0, header());
  }
  if (checksums == Checksums::kOfTiles) sums_ = std::make_unique<TileSums>(entries);
  for (SafetensorsEntry& entry : entries) {
    const std::string name = entry.name;
    const bool added = entries_.emplace(name, std::move(entry)).second;
    TRIMTAB_ASSERT(added, "two tensors named {}", name);
  }
}

SafetensorsWriter::~SafetensorsWriter() = default;

const SafetensorsEntry& SafetensorsWriter::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  TRIMTAB_ASSERT(found != entries_.end(), "{} has no tensor {}", file_.path(), name);
  return found->second;
}

void SafetensorsWriter::Write(const SafetensorsEntry& entry, int64_t element,
                              std::span<const float> values) {
  CheckRange(entry, element, values.size(), /*stride=*/1);
  TRIMTAB_ASSERT(entry.dtype, "{} is not written", entry.name);
  const int64_t offset = std::ssize(header_) + entry.begin + element * SizeOf(*entry.dtype);
  std::vector<std::byte> narrow;
  std::span<const std::byte> stored = std::as_bytes(values);
  if (entry.dtype != DType::kF32) stored = narrow = NarrowTo(*entry.dtype, values);
  file_.WriteAt(offset, stored);
  if (sums_ != nullptr) sums_->Add(entry, element, stored);
}

void SafetensorsWriter::Finish() {
  file_.Sync();
  file_.Close();
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const auto file_bytes = static_cast<int64_t>(file_.bytes().size());
  if (file_bytes < kSizeBytes) {
    throw InputError(
        fmt::format("{}: {} bytes; expected a header size of {}", path, file_bytes, kSizeBytes));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.bytes().data(), sizeof(header_bytes));
  const int64_t limit = std::min(file_bytes - kSizeBytes, kMaxSafetensorsHeaderBytes);
  if (header_bytes > static_cast<uint64_t>(limit)) {
    throw InputError(
        fmt::format("{}: header of {} bytes; expected at most {}", path, header_bytes, limit));
  }
  const std::string_view header(reinterpret_cast<const char*>(file_.bytes().data()) + kSizeBytes,
                                static_cast<size_t>(header_bytes));
  data_begin_ = kSizeBytes + static_cast<int64_t>(header_bytes);
  for (SafetensorsEntry& entry : ParseSafetensorsHeader(header, file_bytes - data_begin_, path)) {
    const std::string name = entry.name;
    entries_.emplace(name, std::move(entry));
  }
}

SafetensorsReader::~SafetensorsReader() = default;

void SafetensorsReader::ExpectSums(std::span<const std::byte> kept, const std::string& where) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, entry] : entries_) entries.push_back(entry);
  checks_ = std::make_unique<TileChecks>(entries, kept, where);
}

const SafetensorsEntry& SafetensorsReader::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw InputError(fmt::format("{}: has no tensor '{}'", file_.path(), name));
  }
  return found->second;
}

std::span<const std::byte> SafetensorsReader::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(data_begin_ + entry.begin),
                               static_cast<size_t>(entry.end - entry.begin));
}

void SafetensorsReader::Read(const SafetensorsEntry& entry, int64_t element,
                             std::span<float> values, int64_t stride) const {
  CheckRange(entry, element, values.size(), stride);
  TRIMTAB_ASSERT(entry.dtype && (IsPlainFloat(*entry.dtype) || SizeOf(*entry.dtype) == 1),
                 "{} is not read", entry.name);
  const std::span<const std::byte> stored = bytes(entry);
  if (checks_ != nullptr && !values.empty()) {
    checks_->Check(entry, stored, element, element + (std::ssize(values) - 1) * stride + 1,
                   file_.path());
  }
  const std::byte* from = stored.data() + element * SizeOf(*entry.dtype);
  switch (*entry.dtype) {
    case DType::kBf16:
      return Widen<uint16_t>(from, stride, values, [](auto bits) { return Bf16ToFloat(bits); });
    case DType::kF16:
      return Widen<uint16_t>(from, stride, values, [](auto bits) { return F16ToFloat(bits); });
    case DType::kF8E4M3:
      return Widen<uint8_t>(from, stride, values, [](auto bits) { return E4M3ToFloat(bits); });
    case DType::kF8E5M2:
      return Widen<uint8_t>(from, stride, values, [](auto bits) { return E5M2ToFloat(bits); });
    case DType::kI8:
      return Widen<int8_t>(from, stride, values, [](auto n) { return static_cast<float>(n); });
    case DType::kU8:
      return Widen<uint8_t>(from, stride, values, [](auto n) { return static_cast<float>(n); });
    default:
      return Widen<float>(from, stride, values, [](float value) { return value; });
  }
}

}  // namespace trimtab

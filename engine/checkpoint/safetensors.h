// safetensors files: named dense tensors (github.com/huggingface/safetensors, format description).
//
// A file is an 8-byte little-endian header size, a JSON header, and the tensors' bytes. Nothing in
// a header is believed: sizes, offsets and shapes are checked against each other and the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/io/file.h"

namespace trimtab {

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::optional<DType> dtype = DType::kF32;  // none: a type of the format that we cannot read
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;

  int64_t numel() const;
};

/// Largest header read, as in the reference implementation.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// The entries of a JSON header for `data_bytes` of data. `where` prefixes messages.
/// Throws InputError: not JSON, unknown type, shape and bytes that disagree, overlap, holes, ...
std::vector<SafetensorsEntry> ParseSafetensorsHeader(std::string_view header, int64_t data_bytes,
                                                     const std::string& where);

/// Sets begin and end of each entry, one after the other, and returns the first bytes of the file:
/// header size and header, padded with spaces so that the data is aligned to 8 bytes.
std::string LayOutSafetensors(std::vector<SafetensorsEntry>& entries,
                              const std::map<std::string, std::string>& metadata);

/// Role of one of several writers of a file: one makes it, before the others join.
enum class FileRole { kMake, kJoin };

/// Selects the checksums that a writer adds up.
enum class Checksums { kNone, kOfTiles };

class TileSums;
class TileChecks;

/// A file made at its full size at once, into which threads and processes then write their parts.
class SafetensorsWriter {
 public:
  /// Throws StorageError when the space cannot be had.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries,
                    const std::map<std::string, std::string>& metadata,
                    FileRole role = FileRole::kMake, Checksums checksums = Checksums::kNone);
  ~SafetensorsWriter();

  /// Size and header bytes of the whole file.
  int64_t file_bytes() const { return file_bytes_; }
  std::span<const std::byte> header() const { return std::as_bytes(std::span(header_)); }
  /// Checksums of what was written; nullptr where none are added up.
  TileSums* sums() const { return sums_.get(); }

  /// Position of the tensor in the file. An unknown name is a programmer's fault.
  const SafetensorsEntry& Find(const std::string& name) const;
  /// Writes elements from `element` on, rounded to the tensor's type: fp32, bf16, fp16 or fp8
  /// (e4m3); or integers of int8 or of bytes as they are. Safe from several threads.
  void Write(const SafetensorsEntry& entry, int64_t element, std::span<const float> values);
  /// Flushes to the disk and closes.
  void Finish();

 private:
  File file_;
  std::string header_;
  std::map<std::string, SafetensorsEntry> entries_;
  int64_t file_bytes_ = 0;
  std::unique_ptr<TileSums> sums_;
};

class SafetensorsReader {
 public:
  /// Reads and checks the header. Throws InputError.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();

  const std::string& path() const { return file_.path(); }
  /// Size and header bytes of the file.
  int64_t file_bytes() const { return static_cast<int64_t>(file_.bytes().size()); }
  std::span<const std::byte> header() const {
    return file_.bytes().first(static_cast<size_t>(data_begin_));
  }
  /// Makes `Read` compare each tile that it comes to with `kept`, sums as TileSums::bytes gives
  /// them. Throws InputError, naming `where`, if the number of tiles differs.
  void ExpectSums(std::span<const std::byte> kept, const std::string& where);
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  /// Throws InputError naming the file when the tensor is not there.
  const SafetensorsEntry& Find(const std::string& name) const;
  /// Reads element, element + stride, ... of a tensor of fp32, bf16, fp16, fp8, int8 or bytes (as
  /// it is stored: without a scale). Safe from several threads. Throws StorageError, naming file
  /// and tensor, for content that ExpectSums does not expect.
  void Read(const SafetensorsEntry& entry, int64_t element, std::span<float> values,
            int64_t stride = 1) const;
  /// The tensor as it is stored.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> entries_;
  int64_t data_begin_ = 0;
  std::unique_ptr<TileChecks> checks_;
};

}  // namespace trimtab

// Names and the JSON document of a checkpoint, shared by its writer and its reader.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace trimtab {

inline constexpr const char* kHeaderFile = "checkpoint.json";
inline constexpr const char* kWeightsFile = "weights.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kWeightsSumsFile = "weights.checksums";
inline constexpr const char* kOptimizerSumsFile = "optimizer.checksums";

/// Beside DIR: a save that is not in place yet, and what it replaced where the file system cannot
/// exchange.
inline constexpr const char* kTemporarySuffix = ".tmp";
inline constexpr const char* kOldSuffix = ".old";
inline constexpr const char* kCheckpointSuffixes[] = {"", kTemporarySuffix, kOldSuffix};

/// The folder itself, when `path` is a link to it or ends in slashes: what stands beside it has its
/// name. Throws StorageError for a link to nowhere.
std::string CheckpointFolder(std::string path);

/// All files that a checkpoint may have.
std::vector<std::string> CheckpointFileNames();

/// Entry of a file in checkpoint.json: its size, and XXH64 either of all of it or, where the rest
/// has checksums of tiles, of its header.
struct FileDigest {
  int64_t bytes = 0;
  std::string xxh64{};
  std::string header_xxh64{};

  bool operator==(const FileDigest&) const = default;
};
/// Describes a file with `content`.
FileDigest DigestOf(std::span<const std::byte> content);
/// Reads a whole file. Throws InputError.
FileDigest DigestFile(const std::string& path);

/// The content of checkpoint.json.
struct CheckpointDocument {
  CheckpointHeader header;
  std::vector<SafetensorsEntry> tensors;    // the weights: names, types and full shapes
  std::vector<std::string> slots;           // of optimizer state that parameters have
  std::map<std::string, FileDigest> files;  // by file name
};
std::string ToText(const CheckpointDocument& document);
/// Throws InputError naming `path`.
CheckpointDocument ParseCheckpointDocument(const std::string& text, const std::string& path);

/// Name of a parameter's slot within its file: "SLOT.NAME"; of its weights the name itself.
std::string TensorName(std::string_view slot, const std::string& parameter);

/// Deletes a checkpoint's files and then the folder, if it is empty. Errors are ignored: what is
/// left harms nobody.
void RemoveCheckpointFolder(const std::string& directory);

}  // namespace trimtab

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_files.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/checkpoint/xxh64.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxHeaderBytes = int64_t{64} << 20;

CheckpointDocument ReadDocument(const std::string& directory) {
  const std::string path = directory + "/" + kHeaderFile;
  return ParseCheckpointDocument(ReadTextFile(path, kMaxHeaderBytes), path);
}

/// A checkpoint is written by us alone: wrong content means damage, not a user's mistake.
StorageError Damaged(const InputError& error) {
  return StorageError(fmt::format("cannot load the checkpoint: {}", error.what()));
}

const FileDigest& DigestIn(const CheckpointDocument& document, const std::string& directory,
                           const char* name) {
  const auto found = document.files.find(name);
  if (found == document.files.end()) {
    throw InputError(fmt::format("{}/{}: lists no file {}", directory, kHeaderFile, name));
  }
  return found->second;
}

void CheckContent(const std::string& path, std::span<const std::byte> content,
                  const FileDigest& expected) {
  const FileDigest found = DigestOf(content);
  if (found == expected) return;
  throw InputError(fmt::format("{}: {} bytes, xxh64 {}; expected {} bytes, xxh64 {}", path,
                               found.bytes, found.xxh64, expected.bytes, expected.xxh64));
}

void CheckFile(const CheckpointDocument& document, const std::string& directory, const char* name) {
  const FileDigest& expected = DigestIn(document, directory, name);
  const std::string path = directory + "/" + name;
  CheckContent(path, MappedFile(path).bytes(), expected);
}

/// Opens a file of tensors whose content is checked as it is read, or was just checked where its
/// checkpoint has a checksum of the whole file.
std::unique_ptr<SafetensorsReader> OpenTensors(const CheckpointDocument& document,
                                               const std::string& directory, const char* name,
                                               const char* sums_name) {
  const FileDigest& expected = DigestIn(document, directory, name);
  if (expected.header_xxh64.empty()) CheckFile(document, directory, name);
  auto file = std::make_unique<SafetensorsReader>(directory + "/" + name);
  if (expected.header_xxh64.empty()) return file;
  const std::string header = Xxh64Hex(file->header());
  if (file->file_bytes() != expected.bytes || header != expected.header_xxh64) {
    throw InputError(fmt::format(
        "{}: {} bytes, xxh64 {} of the header; expected {} bytes, xxh64 {}", file->path(),
        file->file_bytes(), header, expected.bytes, expected.header_xxh64));
  }
  const MappedFile sums(directory + "/" + sums_name);
  CheckContent(sums.path(), sums.bytes(), DigestIn(document, directory, sums_name));
  file->ExpectSums(sums.bytes(), sums.path());
  return file;
}

/// Throws InputError where not one file of a checkpoint is: nothing was damaged, another folder was
/// meant.
void RequireCheckpoint(const std::string& directory) {
  const auto there = [&directory](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(directory) / name, ignored);
  };
  const bool quantized = there("quantized.json");  // beside weights of a checkpoint's name
  for (const char* name : {kHeaderFile, kWeightsFile, kOptimizerFile}) {
    if (there(name) && !quantized) return;
  }
  const char* found = !there("")  ? "no such folder"
                      : quantized ? "holds quantized weights, which serve and do not train"
                      : there("config.json") ? "is a Hugging Face folder, which --load-hf takes"
                                             : "holds no checkpoint";
  throw InputError(
      fmt::format("{}: {}; expected one that 'trimtab train' wrote", directory, found));
}

}  // namespace

int64_t StepOfCheckpoint(const std::string& directory) {
  const std::string path = directory + "/" + kHeaderFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return -1;
  try {
    return ReadDocument(directory).header.step;
  } catch (const InputError&) {
    return -1;
  }
}

CheckpointHeader ReadCheckpointHeader(const std::string& directory) {
  RequireCheckpoint(directory);
  try {
    return ReadDocument(directory).header;
  } catch (const InputError& error) {
    throw Damaged(error);
  }
}

std::string NewestCheckpoint(const std::string& path) {
  const std::string directory = CheckpointFolder(path);
  std::vector<std::pair<int64_t, std::string>> found;
  for (const char* suffix : kCheckpointSuffixes) {
    const int64_t step = StepOfCheckpoint(directory + suffix);
    if (step >= 0) found.emplace_back(step, directory + suffix);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string damage;
  for (const auto& [step, folder] : found) {
    try {
      const CheckpointReader whole(folder);
      return folder;
    } catch (const StorageError& error) {
      if (damage.empty()) damage = error.what();
    }
  }
  if (damage.empty() && std::filesystem::exists(directory + "/" + kHeaderFile)) {
    damage = fmt::format("{}/{}: damaged", directory, kHeaderFile);
  }
  if (!damage.empty()) throw StorageError(damage);
  return "";
}

CheckpointReader::CheckpointReader(const std::string& directory, CheckpointParts parts) {
  RequireCheckpoint(directory);
  try {
    const CheckpointDocument document = ReadDocument(directory);
    weights_ = OpenTensors(document, directory, kWeightsFile, kWeightsSumsFile);
    if (parts == CheckpointParts::kAll) {
      optimizer_ = OpenTensors(document, directory, kOptimizerFile, kOptimizerSumsFile);
    }
    for (const char* name : kTokenizerFiles) {
      if (document.files.contains(name)) CheckFile(document, directory, name);
    }
    header_ = document.header;
    slots_ = document.slots;
  } catch (const InputError& error) {
    throw Damaged(error);
  }
}

void CheckpointReader::Read(std::string_view slot, const TensorSlice& slice) const {
  const bool weight = slot == kWeightSlot;
  TRIMTAB_ASSERT(weight || optimizer_ != nullptr, "a reader of weights is asked for {}",
                 TensorName(slot, slice.spec->name));
  if (!weight && std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) {
    throw InputError(fmt::format(
        "the checkpoint's optimizer state is {} of each parameter; expected {}, as the run's "
        "optimizer keeps",
        slots_.empty() ? "nothing" : fmt::format("{}", fmt::join(slots_, ", ")), slot));
  }
  const SafetensorsReader& file = weight ? *weights_ : *optimizer_;
  const SafetensorsEntry& entry = file.Find(TensorName(slot, slice.spec->name));
  const std::vector<int64_t> shape = FullShape(*slice.spec);
  if (entry.shape != shape || entry.dtype != DType::kF32) {
    throw InputError(fmt::format("checkpoint tensor '{}' is {}[{}]; expected fp32 [{}]", entry.name,
                                 entry.dtype == DType::kF32 ? "fp32 " : "not fp32 ",
                                 fmt::join(entry.shape, ", "), fmt::join(shape, ", ")));
  }
  const int64_t end = slice.begin + static_cast<int64_t>(slice.values.size());
  ForEachRun(*slice.spec, slice.begin, end, [&](int64_t local, int64_t full, int64_t count) {
    file.Read(
        entry, full,
        slice.values.subspan(static_cast<size_t>(local - slice.begin), static_cast<size_t>(count)));
  });
}

}  // namespace trimtab

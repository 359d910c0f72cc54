#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_files.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/checkpoint/tile_sums.h"
#include "engine/checkpoint/xxh64.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

/// All slots that parameters have, in the order in which they first come.
std::vector<std::string> SlotsOf(std::span<const StoredParameter> parameters) {
  std::vector<std::string> slots;
  for (const StoredParameter& parameter : parameters) {
    for (const std::string& slot : parameter.slots) {
      if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
    }
  }
  return slots;
}

/// One tensor of each slot of each parameter, slot by slot.
std::vector<SafetensorsEntry> StateTensors(std::span<const StoredParameter> parameters,
                                           const std::vector<std::string>& slots) {
  std::vector<SafetensorsEntry> tensors;
  for (const std::string& slot : slots) {
    for (const StoredParameter& each : parameters) {
      if (std::find(each.slots.begin(), each.slots.end(), slot) == each.slots.end()) continue;
      tensors.push_back(
          {.name = TensorName(slot, each.spec->name), .shape = FullShape(*each.spec)});
    }
  }
  return tensors;
}

void WriteContent(const std::string& path, std::span<const std::byte> content) {
  File file = File::Create(path);
  file.Append(content);
  file.Sync();
  file.Close();
}

void WriteText(const std::string& path, const std::string& text) {
  WriteContent(path, std::as_bytes(std::span(text)));
}

FileDigest HeaderDigest(const SafetensorsWriter& file) {
  return {.bytes = file.file_bytes(), .header_xxh64 = Xxh64Hex(file.header())};
}

/// Puts `temporary` in the place of `directory`, in one atomic exchange where the system can.
void Replace(const std::string& temporary, const std::string& directory) {
  if (::rename(temporary.c_str(), directory.c_str()) == 0) return;  // absent, or an empty folder
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0) {
    RemoveCheckpointFolder(temporary);
    return;
  }
  const std::string old = directory + kOldSuffix;
  RemoveCheckpointFolder(old);
  if (::rename(directory.c_str(), old.c_str()) != 0 ||
      ::rename(temporary.c_str(), directory.c_str()) != 0) {
    throw StorageError(
        fmt::format("{}: cannot put the checkpoint in place: {}", directory, std::strerror(errno)));
  }
  RemoveCheckpointFolder(old);
}

/// What of a checkpoint must be there for it to be known as one.
enum class Wholeness { kWhole, kPerhapsCutShort };

/// Throws StorageError unless `directory` is not there, empty, or a checkpoint and nothing else.
void RequireReplaceable(const std::string& directory, Wholeness wholeness) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found) return;
  if (status.type() != fs::file_type::directory) {
    throw StorageError(
        fmt::format("{}: not a folder; expected a new, empty or checkpoint folder", directory));
  }
  const auto refuse = [&directory](const std::string& name) {
    throw StorageError(
        fmt::format("{}: holds '{}', which is no part of a checkpoint; expected a new, empty or "
                    "checkpoint folder",
                    directory, name));
  };
  // Without a header, the others' names are those of any model's tokenizer or weights.
  const bool ours = wholeness == Wholeness::kPerhapsCutShort ||
                    fs::exists(fs::path(directory) / kHeaderFile, error);
  const std::vector<std::string> names = CheckpointFileNames();
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!ours || std::find(names.begin(), names.end(), name) == names.end()) refuse(name);
  }
  if (error) {
    throw StorageError(fmt::format("{}: cannot list it: {}", directory, error.message()));
  }
}

}  // namespace

void CheckCheckpointTarget(const std::string& directory) {
  RequireReplaceable(directory, Wholeness::kWhole);
  const std::string folder = CheckpointFolder(directory);
  RequireReplaceable(folder + kTemporarySuffix, Wholeness::kPerhapsCutShort);
  RequireReplaceable(folder + kOldSuffix, Wholeness::kWhole);
}

std::unique_ptr<LockFile> LockCheckpoint(const std::string& directory) {
  auto lock = LockFile::Take(CheckpointFolder(directory) + ".lock");
  if (lock == nullptr) {
    throw StorageError(
        fmt::format("{}: another run saves to it; expected a folder of this run alone", directory));
  }
  return lock;
}

bool ContinuesCheckpoint(const std::string& loaded, const std::string& directory) {
  const std::string folder = CheckpointFolder(directory);
  const auto is_loaded = [&loaded](const std::string& path) {
    std::error_code ignored;
    return fs::equivalent(loaded, path, ignored);
  };
  if (is_loaded(folder)) return true;
  const bool beside = is_loaded(folder + kTemporarySuffix) || is_loaded(folder + kOldSuffix);
  return beside && is_loaded(NewestCheckpoint(folder));
}

void PutInPlace(const std::string& loaded, const std::string& directory) {
  const std::string folder = CheckpointFolder(directory);
  std::error_code error;
  if (fs::equivalent(loaded, folder, error)) return;
  const std::string temporary = folder + kTemporarySuffix;
  if (!fs::equivalent(loaded, temporary, error)) {
    // Replacing moves what is in the way to where this one is.
    RemoveCheckpointFolder(temporary);
    if (::rename(loaded.c_str(), temporary.c_str()) != 0) {
      throw StorageError(fmt::format("{}: cannot rename it: {}", loaded, std::strerror(errno)));
    }
  }
  Replace(temporary, folder);
  SyncParentDirectory(folder);
}

void RequireCheckpointWritable(const std::string& directory) {
  const fs::path temporary = CheckpointFolder(directory) + kTemporarySuffix;
  std::error_code error;
  if (fs::exists(temporary, error)) return;  // of a save that was cut short: still of use
  fs::path made = temporary;                 // the topmost that is not there yet
  while (made.has_parent_path() && !fs::exists(made.parent_path(), error)) {
    made = made.parent_path();
  }
  error.clear();
  fs::create_directories(temporary, error);
  std::error_code ignored;
  for (fs::path each = temporary; each != made.parent_path(); each = each.parent_path()) {
    fs::remove(each, ignored);
  }
  if (error) {
    throw StorageError(fmt::format("{}: cannot create it: {}", directory, error.message()));
  }
}

CheckpointWriter::CheckpointWriter(std::string directory, CheckpointHeader header,
                                   std::span<const StoredParameter> parameters, FileRole role)
    : role_(role),
      directory_(CheckpointFolder(std::move(directory))),
      temporary_(directory_ + kTemporarySuffix),
      header_(std::move(header)),
      slots_(SlotsOf(parameters)) {
  const bool makes = role_ == FileRole::kMake;
  if (makes) CheckCheckpointTarget(directory_);
  for (const StoredParameter& each : parameters) {
    tensors_.push_back({.name = each.spec->name, .shape = FullShape(*each.spec)});
    const Partition& partition = each.spec->partition;
    expected_elements_ +=
        (1 + std::ssize(each.slots)) * partition.full_rows * partition.full_columns;
  }
  if (makes) {
    RemoveCheckpointFolder(temporary_);
    std::error_code error;
    fs::create_directories(temporary_, error);
    if (error) {
      throw StorageError(fmt::format("{}: cannot create it: {}", directory_, error.message()));
    }
  }
  try {
    weights_ = std::make_unique<SafetensorsWriter>(temporary_ + "/" + kWeightsFile, tensors_,
                                                   kMetadata, role_, Checksums::kOfTiles);
    optimizer_ = std::make_unique<SafetensorsWriter>(temporary_ + "/" + kOptimizerFile,
                                                     StateTensors(parameters, slots_), kMetadata,
                                                     role_, Checksums::kOfTiles);
  } catch (...) {
    if (makes) RemoveCheckpointFolder(temporary_);
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (weights_ == nullptr) return;
  weights_.reset();
  optimizer_.reset();
  if (role_ == FileRole::kMake) RemoveCheckpointFolder(temporary_);
}

void CheckpointWriter::Write(std::string_view slot, const TensorSlice& slice) {
  SafetensorsWriter& file = slot == kWeightSlot ? *weights_ : *optimizer_;
  const SafetensorsEntry& entry = file.Find(TensorName(slot, slice.spec->name));
  const int64_t end = slice.begin + static_cast<int64_t>(slice.values.size());
  ForEachRun(*slice.spec, slice.begin, end, [&](int64_t local, int64_t full, int64_t count) {
    file.Write(
        entry, full,
        slice.values.subspan(static_cast<size_t>(local - slice.begin), static_cast<size_t>(count)));
    written_elements_ += count;
  });
}

std::vector<uint64_t> CheckpointWriter::Receipt() const {
  std::vector<uint64_t> receipt = {static_cast<uint64_t>(written_elements_.load())};
  for (const SafetensorsWriter* file : {weights_.get(), optimizer_.get()}) {
    const std::vector<PlacedSum> sums = file->sums()->Placed();
    receipt.push_back(sums.size());
    for (const PlacedSum& each : sums) receipt.insert(receipt.end(), {each.place, each.sum});
  }
  return receipt;
}

void CheckpointWriter::AddReceipt(std::span<const uint64_t> receipt) {
  const auto take = [&receipt] {
    TRIMTAB_ASSERT(!receipt.empty(), "a receipt that was cut short");
    const uint64_t value = receipt.front();
    receipt = receipt.subspan(1);
    return value;
  };
  written_elements_ += static_cast<int64_t>(take());
  for (const SafetensorsWriter* file : {weights_.get(), optimizer_.get()}) {
    std::vector<PlacedSum> sums(take());
    for (PlacedSum& each : sums) {
      each.place = take();
      each.sum = take();
    }
    file->sums()->Add(sums);
  }
}

void CheckpointWriter::Finish() {
  weights_->Finish();
  optimizer_->Finish();
  if (role_ == FileRole::kJoin) return;
  TRIMTAB_ASSERT(written_elements_ == expected_elements_, "{} elements written of {}",
                 written_elements_.load(), expected_elements_);
  CheckpointDocument document = {header_, tensors_, slots_, {}};
  const auto finish_file = [&](const char* name, const char* sums_name,
                               const SafetensorsWriter& file) {
    document.files[name] = HeaderDigest(file);
    WriteContent(temporary_ + "/" + sums_name, file.sums()->bytes());
    document.files[sums_name] = DigestOf(file.sums()->bytes());
  };
  finish_file(kWeightsFile, kWeightsSumsFile, *weights_);
  finish_file(kOptimizerFile, kOptimizerSumsFile, *optimizer_);
  for (const auto& [name, content] : header_.tokenizer_files) {
    WriteText(temporary_ + "/" + name, content);
    document.files[name] = DigestOf(std::as_bytes(std::span(content)));
  }
  WriteText(temporary_ + "/" + kHeaderFile, ToText(document));
  SyncDirectory(temporary_);
  Replace(temporary_, directory_);
  weights_.reset();
  optimizer_.reset();
  SyncParentDirectory(directory_);
}

}  // namespace trimtab

#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/data/dataset/indexed_dataset_format.h"

namespace trimtab {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

template <typename T>
void AppendValue(AtomicFile& file, T value) {
  file.Append(std::as_bytes(std::span(&value, 1)));
}

template <typename T>
void Encode(std::span<const int32_t> tokens, std::string& out) {
  out.resize(tokens.size() * sizeof(T));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T value = static_cast<T>(tokens[i]);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

std::string InfoText(const DatasetInfo& info) {
  const nlohmann::ordered_json json = {{"schema_version", 1},
                                       {"tokenizer", info.tokenizer},
                                       {"vocab_size", info.vocab_size},
                                       {"eod_id", info.eod_id}};
  return json.dump(2) + "\n";
}

}  // namespace

IndexedDatasetBuilder::IndexedDatasetBuilder(const std::string& prefix, DatasetInfo info)
    : prefix_(prefix),
      info_(std::move(info)),
      type_(TokenTypeFor(info_.vocab_size)),
      bin_(idx::BinPath(prefix)) {}

void IndexedDatasetBuilder::AddDocument(std::span<const int32_t> tokens) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError(
        fmt::format("a document of {} tokens; expected at most {} (the format's limit)",
                    tokens.size(), std::numeric_limits<int32_t>::max()));
  }
  for (const int32_t token : tokens) {
    TRIMTAB_ASSERT(token >= 0 && token < info_.vocab_size, "id {} of {}", token, info_.vocab_size);
  }
  if (type_ == TokenType::kUint16) {
    Encode<uint16_t>(tokens, encoded_);
  } else {
    Encode<int32_t>(tokens, encoded_);
  }
  bin_.Append(encoded_);
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  tokens_ += static_cast<int64_t>(tokens.size());
}

void IndexedDatasetBuilder::Finish() {
  AtomicFile index(idx::IdxPath(prefix_));
  index.Append(idx::kMagic);
  AppendValue(index, idx::kVersion);
  AppendValue(index, static_cast<uint8_t>(type_));
  AppendValue(index, static_cast<uint64_t>(lengths_.size()));
  AppendValue(index, static_cast<uint64_t>(lengths_.size() + 1));
  index.Append(std::as_bytes(std::span(lengths_)));
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    AppendValue(index, pointer);
    pointer += length * SizeOf(type_);
  }
  for (size_t i = 0; i <= lengths_.size(); ++i) AppendValue(index, static_cast<int64_t>(i));
  AtomicFile info(idx::InfoPath(prefix_));
  info.Append(InfoText(info_));

  // Everything is on the disk before the first name changes. The old index goes first, so that a
  // crash in between never leaves an index beside tokens it does not describe.
  bin_.Sync();
  index.Sync();
  info.Sync();
  std::error_code ignored;
  std::filesystem::remove(idx::IdxPath(prefix_), ignored);
  bin_.Commit();
  info.Commit();
  index.Commit();
}

}  // namespace trimtab

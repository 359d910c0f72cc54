#include "engine/data/dataset/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset_format.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxInfoBytes = int64_t{1} << 20;

template <typename T>
T ValueAt(std::span<const std::byte> bytes, int64_t byte_offset) {
  T value;
  std::memcpy(&value, bytes.data() + byte_offset, sizeof(T));
  return value;
}

/// Element `i` of an array of T, which need not be aligned.
template <typename T>
T Element(std::span<const std::byte> bytes, int64_t i) {
  return ValueAt<T>(bytes, i * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
void Widen(std::span<const std::byte> bytes, int64_t begin, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = Element<T>(bytes, begin + static_cast<int64_t>(i));
    const bool fits = static_cast<int64_t>(value) >= 0 &&
                      static_cast<int64_t>(value) <= std::numeric_limits<int32_t>::max();
    out[i] = fits ? static_cast<int32_t>(value) : -1;
  }
}

}  // namespace

std::optional<DatasetInfo> ReadDatasetInfo(const std::string& prefix) {
  const std::string path = idx::InfoPath(prefix);
  if (!std::filesystem::exists(path)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(ReadTextFile(path, kMaxInfoBytes), nullptr,
                                                    /*allow_exceptions=*/false);
  const auto has = [&](const char* key, auto predicate) {
    return json.is_object() && json.contains(key) && predicate(json[key]);
  };
  const auto is_integer = [](const nlohmann::json& v) { return v.is_number_integer(); };
  if (!has("schema_version", is_integer) || json["schema_version"] != 1 ||
      !has("tokenizer", [](const nlohmann::json& v) { return v.is_string(); }) ||
      !has("vocab_size", is_integer) || !has("eod_id", is_integer)) {
    throw InputError(fmt::format(
        "{}: not a dataset description; expected schema_version 1, tokenizer, vocab_size, eod_id",
        path));
  }
  DatasetInfo info = {json["tokenizer"], json["vocab_size"], json["eod_id"]};
  if (info.vocab_size < 1 || info.vocab_size > std::numeric_limits<int32_t>::max()) {
    throw InputError(fmt::format("{}: $.vocab_size: {} is out of range; expected 1 to {}", path,
                                 info.vocab_size, std::numeric_limits<int32_t>::max()));
  }
  return info;
}

std::string_view Name(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
      return "uint8";
    case TokenType::kInt8:
      return "int8";
    case TokenType::kInt16:
      return "int16";
    case TokenType::kInt32:
      return "int32";
    case TokenType::kInt64:
      return "int64";
    case TokenType::kUint16:
      return "uint16";
  }
  return "?";
}

int64_t SizeOf(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;  // not a code of the format
}

TokenType TokenTypeFor(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

IndexedDataset::IndexedDataset(const std::string& prefix)
    : index_(idx::IdxPath(prefix)), bin_(idx::BinPath(prefix)), info_(ReadDatasetInfo(prefix)) {
  ParseIndex();
}

void IndexedDataset::ParseIndex() {
  const std::span<const std::byte> all = index_.bytes();
  const int64_t size = static_cast<int64_t>(all.size());
  const auto fail = [this](const std::string& what) {
    throw InputError(fmt::format("{}: {}", index_.path(), what));
  };
  if (size < idx::kHeaderBytes) {
    fail(fmt::format("{} bytes; expected a header of {}", size, idx::kHeaderBytes));
  }
  if (std::memcmp(all.data(), idx::kMagic.data(), idx::kMagic.size()) != 0) {
    fail("does not begin with MMIDIDX; expected a Megatron-Core dataset index");
  }
  if (const auto version = ValueAt<uint64_t>(all, 9); version != idx::kVersion) {
    fail(fmt::format("format version {}; expected {}", version, idx::kVersion));
  }
  type_ = static_cast<TokenType>(ValueAt<uint8_t>(all, 17));
  if (trimtab::SizeOf(type_) == 0) {
    fail(fmt::format("token type code {}; expected an integer type (1 to 5, or 8)",
                     static_cast<int>(type_)));
  }
  const auto sequences = ValueAt<uint64_t>(all, 18);
  const auto indices = ValueAt<uint64_t>(all, 26);
  const auto limit = static_cast<uint64_t>(size);  // an entry takes more than a byte
  if (sequences > limit || indices > limit || indices < 1) {
    fail(fmt::format("{} sequences and {} document indices do not fit in a file of {} bytes",
                     sequences, indices, size));
  }
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(indices) - 1;
  const int64_t expected = idx::kHeaderBytes + sequences_ * (4 + 8) + (documents_ + 1) * 8;
  // Multimodal datasets append one mode byte for each sequence.
  if (size != expected && size != expected + sequences_) {
    fail(fmt::format("{} bytes; expected {} for {} sequences and {} documents", size, expected,
                     sequences_, documents_));
  }
  const auto array = [&all](int64_t begin, int64_t bytes) {
    return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  };
  const int64_t pointers_begin = idx::kHeaderBytes + sequences_ * 4;
  CheckPointers(array(idx::kHeaderBytes, sequences_ * 4), array(pointers_begin, sequences_ * 8));
  CheckDocuments(array(pointers_begin + sequences_ * 8, (documents_ + 1) * 8));
}

void IndexedDataset::CheckPointers(std::span<const std::byte> lengths,
                                   std::span<const std::byte> pointers) {
  const int64_t bin_bytes = static_cast<int64_t>(bin_.bytes().size());
  int64_t next = 0;
  for (int64_t i = 0; i < sequences_; ++i) {
    const auto length = Element<int32_t>(lengths, i);
    const auto pointer = Element<int64_t>(pointers, i);
    if (length < 0) {
      throw InputError(fmt::format("{}: sequence {} has length {}; expected 0 or more",
                                   index_.path(), i, length));
    }
    if (pointer != next) {
      throw InputError(
          fmt::format("{}: sequence {} points to byte {}; expected {}, the end of the "
                      "sequence before it",
                      index_.path(), i, pointer, next));
    }
    next += length * trimtab::SizeOf(type_);
  }
  if (next != bin_bytes) {
    throw InputError(fmt::format("{}: {} bytes; expected {} by {}", bin_.path(), bin_bytes, next,
                                 index_.path()));
  }
  tokens_ = next / trimtab::SizeOf(type_);
}

void IndexedDataset::CheckDocuments(std::span<const std::byte> indices) {
  int64_t previous = 0;
  for (int64_t i = 0; i <= documents_; ++i) {
    const auto index = Element<int64_t>(indices, i);
    const bool first_ok = i > 0 || index == 0;
    const bool last_ok = i < documents_ || index == sequences_;
    if (index < previous || !first_ok || !last_ok) {
      throw InputError(
          fmt::format("{}: document index {} is {}; expected 0 to {}, ascending, from 0 "
                      "to the number of sequences",
                      index_.path(), i, index, sequences_));
    }
    previous = index;
  }
}

int32_t IndexedDataset::sequence_length(int64_t sequence) const {
  return ValueAt<int32_t>(index_.bytes(), idx::kHeaderBytes + sequence * 4);
}

int64_t IndexedDataset::DocumentBegin(int64_t document) const {
  const int64_t pointers = idx::kHeaderBytes + sequences_ * 4;
  const int64_t indices = pointers + sequences_ * 8;
  const auto sequence = ValueAt<int64_t>(index_.bytes(), indices + document * 8);
  if (sequence == sequences_) return tokens_;
  return ValueAt<int64_t>(index_.bytes(), pointers + sequence * 8) / trimtab::SizeOf(type_);
}

void IndexedDataset::DocumentBegins(int64_t first, int64_t end,
                                    std::vector<int64_t>& begins) const {
  int64_t document = 0;
  for (int64_t behind = documents_; document < behind;) {
    const int64_t middle = (document + behind) / 2;
    if (DocumentBegin(middle) < first) {
      document = middle + 1;
    } else {
      behind = middle;
    }
  }
  // Documents without tokens begin where the next one does.
  for (int64_t last = first - 1; document < documents_; ++document) {
    const int64_t begin = DocumentBegin(document);
    if (begin >= end) return;
    if (begin > last) begins.push_back(begin);
    last = begin;
  }
}

void IndexedDataset::Read(int64_t begin, std::span<int32_t> out) const {
  TRIMTAB_ASSERT(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens_,
                 "tokens [{}, +{}) of {}", begin, out.size(), tokens_);
  switch (type_) {
    case TokenType::kUint8:
      return Widen<uint8_t>(bin_.bytes(), begin, out);
    case TokenType::kInt8:
      return Widen<int8_t>(bin_.bytes(), begin, out);
    case TokenType::kInt16:
      return Widen<int16_t>(bin_.bytes(), begin, out);
    case TokenType::kUint16:
      return Widen<uint16_t>(bin_.bytes(), begin, out);
    case TokenType::kInt32:
      return Widen<int32_t>(bin_.bytes(), begin, out);
    case TokenType::kInt64:
      return Widen<int64_t>(bin_.bytes(), begin, out);
  }
}

int32_t IndexedDataset::MaxToken() const {
  std::vector<int32_t> block(size_t{1} << 16);
  int32_t largest = 0;
  for (int64_t begin = 0; begin < tokens_;) {
    const int64_t count = std::min<int64_t>(tokens_ - begin, static_cast<int64_t>(block.size()));
    const std::span<int32_t> part(block.data(), static_cast<size_t>(count));
    Read(begin, part);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    if (*low < 0) {
      throw InputError(fmt::format("{}: token {} is not an id of 0 to {}", bin_path(),
                                   begin + (low - part.begin()),
                                   std::numeric_limits<int32_t>::max()));
    }
    largest = std::max(largest, *high);
    begin += count;
  }
  return largest;
}

}  // namespace trimtab

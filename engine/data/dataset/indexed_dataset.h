// Indexed datasets: documents of token ids in PREFIX.bin, their index in PREFIX.idx, in the format
// of Megatron-Core (README.md describes both to the byte).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/io/file.h"

namespace trimtab {

/// How a token id is stored. The values are the format's codes.
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};

/// "uint16", ...
std::string_view Name(TokenType type);
/// Bytes of one stored id.
int64_t SizeOf(TokenType type);
/// The smallest type a builder uses for `vocab_size` ids, by Megatron-Core's rule.
TokenType TokenTypeFor(int64_t vocab_size);

/// What PREFIX.json says about a dataset. Megatron's own datasets have no such file.
struct DatasetInfo {
  std::string tokenizer;  // Tokenizer::name()
  int64_t vocab_size = 0;
  int32_t eod_id = 0;

  bool operator==(const DatasetInfo&) const = default;
};

/// Reads PREFIX.json; nothing when there is none. Throws InputError when it is something else.
std::optional<DatasetInfo> ReadDatasetInfo(const std::string& prefix);

/// Adds documents one by one; the files appear only with Finish.
class IndexedDatasetBuilder {
 public:
  /// Throws StorageError when the folder of `prefix` is missing or cannot be written.
  IndexedDatasetBuilder(const std::string& prefix, DatasetInfo info);

  /// One document of ids in [0, info.vocab_size), stored as one sequence.
  /// Throws StorageError (disk full, ...).
  void AddDocument(std::span<const int32_t> tokens);
  /// Puts the files in place, the index last. Without it nothing of the dataset is left.
  void Finish();

  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  std::string prefix_;
  DatasetInfo info_;
  TokenType type_;
  AtomicFile bin_;
  std::vector<int32_t> lengths_;
  std::string encoded_;  // scratch of AddDocument
  int64_t tokens_ = 0;
};

/// A dataset, mapped into memory and checked when opened. Safe to use from several threads.
class IndexedDataset {
 public:
  /// Throws InputError naming the file, what was found and what was expected.
  explicit IndexedDataset(const std::string& prefix);

  TokenType token_type() const { return type_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  /// Tokens of all sequences, which lie one after the other.
  int64_t tokens() const { return tokens_; }
  int32_t sequence_length(int64_t sequence) const;
  /// From PREFIX.json, if it is there.
  const std::optional<DatasetInfo>& info() const { return info_; }

  /// Appends the tokens of [first, end), ascending, with which documents begin, each once.
  void DocumentBegins(int64_t first, int64_t end, std::vector<int64_t>& begins) const;
  /// Tokens [begin, begin + out.size()) of the whole run of tokens. An id that does not fit int32
  /// becomes -1.
  void Read(int64_t begin, std::span<int32_t> out) const;
  /// The largest id. Reads everything once. Throws InputError if an id is negative.
  int32_t MaxToken() const;

  std::string bin_path() const { return bin_.path(); }

 private:
  void ParseIndex();
  void CheckPointers(std::span<const std::byte> lengths, std::span<const std::byte> pointers);
  void CheckDocuments(std::span<const std::byte> indices);
  /// Returns the first token of document `document`, or tokens() behind the last.
  int64_t DocumentBegin(int64_t document) const;

  MappedFile index_;
  MappedFile bin_;
  std::optional<DatasetInfo> info_;
  TokenType type_ = TokenType::kUint16;
  int64_t sequences_ = 0;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace trimtab

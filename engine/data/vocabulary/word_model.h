// WordModel: the tokens of one word.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/data/vocabulary/special_tokens.h"

namespace trimtab {

/// Ids by token, as a tokenizer.json writes them.
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

/// A `model` of a tokenizer.json. Safe to use from several threads.
class WordModel {
 public:
  virtual ~WordModel() = default;

  /// Appends the ids of `word`.
  virtual void Encode(std::string_view word, std::vector<int32_t>& tokens) const = 0;

  /// From now on no word becomes one of `tokens`: they are special, and found by name alone. Else a
  /// document that has their names could forge them.
  virtual void Exclude(const std::vector<std::string>& tokens) = 0;

  const TokenIds& ids() const { return ids_; }

 protected:
  TokenIds ids_;
};

/// Reads a `model`. With `byte_level` words are bytes, and its tokens are written in characters for
/// bytes. Throws InputError with the JSON path of what is not understood.
std::unique_ptr<WordModel> ReadWordModel(const nlohmann::json& model, const std::string& where,
                                         bool byte_level);

/// "<0x0A>": how vocabularies of characters write the token of a byte.
std::string ByteToken(int byte);
/// The ids of "<0x00>" to "<0xFF>"; -1 for those that `ids` lacks.
std::vector<int32_t> ByteTokens(const TokenIds& ids);

}  // namespace trimtab

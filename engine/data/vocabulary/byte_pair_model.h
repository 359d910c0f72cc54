// BytePairModel: byte-pair encoding, over bytes or over characters.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/vocabulary/byte_pair_merger.h"
#include "engine/data/vocabulary/word_model.h"

namespace trimtab {

class BytePairModel : public WordModel {
 public:
  /// See ReadWordModel.
  BytePairModel(const nlohmann::json& model, const std::string& where, bool byte_level);

  void Encode(std::string_view word, std::vector<int32_t>& tokens) const override;
  void Exclude(const std::vector<std::string>& tokens) override;

 private:
  void ReadMerges(const nlohmann::json& merges, const std::string& where);
  void RequireEveryCharacter(const std::string& where) const;
  std::string BytesOfWord(const std::string& token) const;
  /// The ids of the bytes of a character that is no token; false where one of them is none either.
  bool AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const;

  const bool byte_level_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool whole_words_first_ = false;  // `ignore_merges`: a word that is a token is not merged
  int32_t unknown_ = -1;            // what stands for a character that is no token; -1: nothing
  std::array<std::string, 256> byte_characters_;  // of byte-level vocabularies
  std::array<int32_t, 256> byte_ids_{};           // -1: no token
  std::vector<int32_t> fallback_;                 // "<0x00>" ...
  BytePairMerger merges_;
  TokenIds words_;  // by bytes, where whole words come first
};

}  // namespace trimtab

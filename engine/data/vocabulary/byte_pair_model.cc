#include "engine/data/vocabulary/byte_pair_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/tokenizer/tokenizer_config.h"
#include "engine/data/vocabulary/characters.h"
#include "engine/data/vocabulary/hugging_face_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

void ReadVocab(const json& vocab, const std::string& where, TokenIds& ids) {
  if (!vocab.is_object()) RefuseJson(where, "an object of tokens and ids", vocab);
  std::vector<bool> used;
  for (const auto& [token, id] : vocab.items()) {
    const auto here = [&] { return fmt::format("{}[{}]", where, json(token).dump()); };
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      RefuseJson(here(), fmt::format("an id from 0 to {}", kMaxTokenId), id);
    }
    const auto place = id.get<size_t>();
    if (place >= used.size()) used.resize(place + 1);
    if (used[place]) RefuseJson(here(), "an id that no other token has", id);
    used[place] = true;
    ids[token] = static_cast<int32_t>(place);
  }
}

/// The two tokens of a merge; nothing where it is not written as such.
std::optional<std::pair<std::string_view, std::string_view>> PairOf(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair<std::string_view, std::string_view>(merge[0].get_ref<const std::string&>(),
                                                         merge[1].get_ref<const std::string&>());
  }
  if (!merge.is_string()) return std::nullopt;
  const std::string_view pair = merge.get_ref<const std::string&>();
  const size_t blank = pair.find(' ');
  if (blank == std::string_view::npos || pair.find(' ', blank + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(pair.substr(0, blank), pair.substr(blank + 1));
}

}  // namespace

BytePairModel::BytePairModel(const json& model, const std::string& where, bool byte_level)
    : byte_level_(byte_level) {
  StrictObject object(model, where);
  object.Find("type");
  const json* dropout = object.Find("dropout");  // of training
  if (dropout != nullptr && !dropout->is_null() && *dropout != 0) {
    object.Refuse("dropout", "null or 0");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = object.Find(key);
    if (value != nullptr && !value->is_null() && *value != "") object.Refuse(key, "null or \"\"");
  }
  std::string unknown;
  const json* unknown_token = object.Find("unk_token");
  if (unknown_token != nullptr && !unknown_token->is_null()) object.Text("unk_token", unknown);
  object.Boolean("fuse_unk", fuse_unknown_);
  object.Boolean("byte_fallback", byte_fallback_);
  object.Boolean("ignore_merges", whole_words_first_);
  const json* vocab = object.Find("vocab", Need::kRequired);
  const json* merges = object.Find("merges", Need::kRequired);
  object.Finish();
  ReadVocab(*vocab, object.Where("vocab"), ids_);
  fallback_ = ByteTokens(ids_);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_characters_[byte] = ByteCharacter(static_cast<uint8_t>(byte));
    const auto found = ids_.find(byte_characters_[byte]);
    byte_ids_[byte] = found == ids_.end() ? -1 : found->second;
  }
  const auto found = ids_.find(unknown);
  if (found != ids_.end() && !unknown.empty()) unknown_ = found->second;
  RequireEveryCharacter(where);
  ReadMerges(*merges, object.Where("merges"));
  if (!whole_words_first_) return;
  for (const auto& [token, id] : ids_) {
    // "<0x0A>" in a text is six characters.
    if (byte_fallback_ && token.starts_with("<0x") && token.size() == 6) continue;
    words_.emplace(BytesOfWord(token), id);
  }
}

/// What a word of bytes or characters must be for `token` to be the whole of it.
std::string BytePairModel::BytesOfWord(const std::string& token) const {
  return byte_level_ ? BytesOfToken(token).value_or(token) : token;
}

void BytePairModel::Exclude(const std::vector<std::string>& tokens) {
  std::unordered_set<int32_t> excluded;
  for (const std::string& token : tokens) {
    words_.erase(BytesOfWord(token));
    if (const auto found = ids_.find(token); found != ids_.end()) excluded.insert(found->second);
  }
  merges_.RemoveThoseInto(excluded);
}

/// No character of a text may be lost.
void BytePairModel::RequireEveryCharacter(const std::string& where) const {
  if (unknown_ >= 0) return;
  if (byte_level_) {
    const auto missing = std::ranges::find(byte_ids_, -1);
    if (missing == byte_ids_.end()) return;
    const auto byte = static_cast<size_t>(missing - byte_ids_.begin());
    throw InputError(
        fmt::format("{}.vocab: expected a token for each of the 256 bytes, or one of $.model."
                    "unk_token; '{}' (0x{:02x}) is missing",
                    where, byte_characters_[byte], byte));
  }
  const auto missing = std::ranges::find(fallback_, -1);
  if (byte_fallback_ && missing == fallback_.end()) return;
  throw InputError(fmt::format(
      "{}.unk_token: expected a token of $.model.vocab for characters that are none, or "
      "byte_fallback with tokens from <0x00> to <0xFF>",
      where));
}

void BytePairModel::ReadMerges(const json& merges, const std::string& where) {
  if (!merges.is_array()) RefuseJson(where, "a list of pairs", merges);
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto here = [&] { return fmt::format("{}[{}]", where, i); };
    const auto pair = PairOf(merges[i]);
    if (!pair) RefuseJson(here(), "two tokens, as \"a b\" or [\"a\", \"b\"]", merges[i]);
    const auto id_of = [&](std::string_view token) {
      const auto found = ids_.find(token);
      if (found != ids_.end()) return found->second;
      throw InputError(fmt::format("{}: '{}' is not in $.model.vocab", here(), token));
    };
    const int32_t merged = id_of(std::string(pair->first).append(pair->second));
    if (!merges_.Add(id_of(pair->first), id_of(pair->second), merged)) {
      RefuseJson(here(), "a pair that was not there before", merges[i]);
    }
  }
}

bool BytePairModel::AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const {
  if (!byte_fallback_) return false;
  const auto id = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
  if (std::ranges::any_of(character, [&](char c) { return id(c) < 0; })) return false;
  for (const char c : character) symbols.push_back(id(c));
  return true;
}

void BytePairModel::Encode(std::string_view word, std::vector<int32_t>& tokens) const {
  if (whole_words_first_) {
    const auto found = words_.find(word);
    if (found != words_.end()) return tokens.push_back(found->second);
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  // An unknown character waits for the next that is a token, as others may join it.
  bool waiting = false;
  const auto flush = [&] {
    if (std::exchange(waiting, false)) symbols.push_back(unknown_);
  };
  for (size_t at = 0; at < word.size();) {
    const size_t size = byte_level_ ? 1 : CharacterAt(word, at).bytes;
    std::string_view character = word.substr(at, size);
    at += size;
    int32_t id = -1;
    if (byte_level_) {
      const auto byte = static_cast<unsigned char>(character[0]);
      id = byte_ids_[byte];
      character = byte_characters_[byte];
    } else if (const auto found = ids_.find(character); found != ids_.end()) {
      id = found->second;
    }
    if (id >= 0) {
      flush();
      symbols.push_back(id);
    } else if (!AppendBytes(character, symbols)) {
      if (!fuse_unknown_) flush();
      waiting = true;
    }
  }
  flush();
  merges_.Merge(symbols);
  tokens.insert(tokens.end(), symbols.begin(), symbols.end());
}

}  // namespace trimtab

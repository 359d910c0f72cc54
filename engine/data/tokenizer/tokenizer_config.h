// What stands beside a vocabulary: tokenizer_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/vocabulary/special_tokens.h"

namespace trimtab {

inline constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
/// The names of the tokens that end a document, begin a text and so on: what older files say alone.
inline constexpr char kSpecialTokensFile[] = "special_tokens_map.json";
/// Ids by name: what older programs wrote of the tokens that came later.
inline constexpr char kAddedTokensFile[] = "added_tokens.json";

/// The highest id that a file may give a token.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;
inline constexpr int64_t kMostTokenIds = kMaxTokenId + 1;

/// A token that came to a vocabulary later, or of which more is to be said.
struct AddedToken {
  int32_t id = 0;
  std::string name{};
  bool special = false;
  NameRules rules{};
  bool normalized = false;  // its name is found in the text as the vocabulary normalises it

  bool operator==(const AddedToken&) const = default;
};

/// What is read of it; its other keys are of other programs.
struct TokenizerConfig {
  std::string eos_token{};              // the name of the token that ends a document
  std::string bos_token{};              // and of the one that begins a text
  std::optional<bool> add_bos_token{};  // whether prompts begin with the id that begins a text
  std::string tokenizer_class{};        // of transformers
  bool add_prefix_space = false;        // of vocab.json and merges.txt, which do not say it
  /// In Jinja, by name; one is "default".
  std::vector<std::pair<std::string, std::string>> chat_templates{};
  /// Other special tokens by key: "unk_token".
  std::vector<std::pair<std::string, std::string>> other_tokens{};
  std::vector<AddedToken> added_tokens{};

  bool operator==(const TokenizerConfig&) const = default;
};

/// Warns that `count` added tokens of the tokenizer at `path` are left out, if any are: their ids
/// are beyond the `most_ids` of the model.
void WarnOfLeftOut(int64_t count, const std::string& path, int64_t most_ids);

/// Throws InputError with the JSON path of a key whose value is not what it must be.
TokenizerConfig ReadTokenizerConfig(const std::string& text, const std::string& path);

/// Adds what the text of an added_tokens.json has beyond those of `config`: special where its name
/// looks like it, as nothing else says it. Throws as ReadTokenizerConfig does.
void ReadAddedTokens(const std::string& text, const std::string& path, TokenizerConfig& config);

/// Puts a template in the place of that of the same name, or adds it.
void SetChatTemplate(TokenizerConfig& config, const std::string& name, std::string text);

/// How conversations are written, with the names of all its special tokens.
ChatFormat ChatFormatOf(const TokenizerConfig& config);

/// The same as JSON, for a file of its own.
std::string ToJsonText(const TokenizerConfig& config);

}  // namespace trimtab

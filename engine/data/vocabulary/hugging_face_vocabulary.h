// What a Hugging Face tokenizer.json says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/tokenizer_config.h"
#include "engine/data/vocabulary/normalizer.h"
#include "engine/data/vocabulary/pre_tokenizer.h"
#include "engine/data/vocabulary/special_tokens.h"
#include "engine/data/vocabulary/word_model.h"

namespace trimtab {

/// A vocabulary and the rules that apply it.
struct HuggingFaceVocabulary {
  /// A token, by what it adds to a text: to what stands before it, and at the text's beginning.
  struct Token {
    std::string bytes{};
    std::string first_bytes{};
    bool special = false;  // stands for nothing in a text
  };
  std::vector<std::optional<Token>> tokens;  // by id; nothing where an id is not used

  /// Tokens that are found by name, before the text is normalised and after. Of both the special
  /// ones, where names of special tokens mean them, and the others, which always do.
  struct Added {
    SpecialTokens all;
    SpecialTokens not_special;
  };
  Added before_normalizing;
  Added after_normalizing;
  /// Ids by the names of all special tokens, and these in the order of the file.
  TokenIds special_ids;
  std::vector<std::string> special_names;

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  std::shared_ptr<const class TokenDecoder> decoder;
  std::vector<int32_t> prompt_prefix;
  /// How many added tokens have ids that the model lacks.
  int64_t left_out = 0;

  std::optional<int32_t> SpecialId(std::string_view name) const;
};

/// Reads the text of a tokenizer.json; `name` is that of the file in messages. `config` may have
/// more tokens to find by name. What is not understood is refused with its JSON path: nothing is
/// guessed and nothing left out. (Truncation and padding are of calls, not of the vocabulary, and
/// do not apply.) Only added tokens whose ids are not below `most_ids`, those of the model, are
/// left out and counted. Throws InputError.
HuggingFaceVocabulary ReadHuggingFaceVocabulary(const std::string& text, const std::string& name,
                                                const TokenizerConfig& config, int64_t most_ids);

}  // namespace trimtab

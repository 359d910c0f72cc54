// What a Hugging Face tokenizer.json says, for the kind that is read: byte-level byte-pair
// encoding.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/vocabulary/byte_pair_merger.h"
#include "engine/data/vocabulary/normal_form.h"
#include "engine/data/vocabulary/special_tokens.h"
#include "engine/data/vocabulary/split_steps.h"

namespace trimtab {

/// A vocabulary and the rules that apply it.
struct HuggingFaceVocabulary {
  /// By id, the bytes each token stands for; nothing where an id is not used.
  std::vector<std::optional<std::string>> tokens;
  std::vector<bool> special;  // by id: stands for nothing in a text
  std::array<int32_t, 256> byte_ids{};
  BytePairMerger merges;
  bool whole_words_first =
      false;  // `ignore_merges`: a word that is a token is not merged from bytes

  /// Tokens that are found by name, before the text is normalised and after. Of both the special
  /// ones, where names of special tokens mean them, and the others, which always do.
  struct Added {
    SpecialTokens all;
    SpecialTokens not_special;
  };
  Added before_normalizing;
  Added after_normalizing;

  std::vector<NormalForm> normal_forms;
  std::vector<SplitStep> steps;
  std::vector<int32_t> prompt_prefix;

  std::optional<int32_t> SpecialId(std::string_view name) const;
  /// The names of all special tokens, in the order of the file.
  std::vector<std::string> special_names;
  /// How many added tokens have ids that the model lacks.
  int64_t left_out = 0;
};

/// Reads the text of a tokenizer.json; `name` is that of the file in messages. What is not
/// understood is refused with its JSON path: nothing is guessed and nothing left out. (Truncation
/// and padding are of calls, not of the vocabulary, and do not apply.) Only added tokens whose ids
/// are not below `most_ids`, those of the model, are left out and counted. Throws InputError.
HuggingFaceVocabulary ReadHuggingFaceVocabulary(const std::string& text, const std::string& name,
                                                int64_t most_ids);

}  // namespace trimtab

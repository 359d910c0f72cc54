// Vocabularies that a test trains itself: byte-pair encoding over given words.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

/// Lines in a dozen scripts, with digits, contractions, white space of all kinds and emoji.
std::vector<std::string> ManyScripts();

/// Pairs of tokens in the order in which a byte-pair encoding of `words` joins them, at most
/// `count`; tokens are raw bytes.
std::vector<std::pair<std::string, std::string>> TrainMerges(const std::vector<std::string>& words,
                                                             int count);

/// What a tokenizer.json of these merges says: "gpt2", "llama3" or "qwen2" rules. Ids are those of
/// the bytes, then of the merges, then of the special tokens "<|end|>" and "<|start|>".
std::string VocabularyJson(const std::vector<std::pair<std::string, std::string>>& merges,
                           const std::string& rules);

}  // namespace trimtab

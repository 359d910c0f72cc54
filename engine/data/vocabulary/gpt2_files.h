// The two files of GPT-2's own format, which older models have: vocab.json and merges.txt.
#pragma once

#include <string>

#include "engine/data/tokenizer/tokenizer_config.h"

namespace trimtab {

inline constexpr char kVocabFile[] = "vocab.json";
inline constexpr char kMergesFile[] = "merges.txt";

/// The tokenizer.json that says the same as the texts of the two files; `vocab_path` and
/// `merges_path` name them in messages. A token that is neither a byte nor a merge of two others
/// is special. How words are found follows from the class that `config` names. Throws InputError,
/// also for a class whose rules are not known.
std::string TokenizerJsonOf(const std::string& vocab, const std::string& vocab_path,
                            const std::string& merges, const std::string& merges_path,
                            const TokenizerConfig& config);

}  // namespace trimtab

// What other programs read beside a vocabulary: which tokens end, begin and pad a text, and which
// of their classes reads it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// Returns the ids for config.json (`eos_token_id`, ...) of the model in `folder`, a checkpoint:
/// those of the config.json that it came with, or else of its generation_config.json, or else of
/// its tokenizer. An empty object where there is none of these. Throws InputError.
nlohmann::json TokenIdsOf(const std::string& folder);

/// Returns the files that the tokenizer in `folder` lacks and other programs need: a
/// tokenizer_config.json, and a generation_config.json with `token_ids`. `most_tokens` is how many
/// tokens the model takes; 0: any number. None where the folder has no tokenizer. Throws
/// InputError.
std::vector<TokenizerFile> MissingReaderFiles(const std::string& folder,
                                              const nlohmann::json& token_ids, int64_t most_tokens);

}  // namespace trimtab

// The ids at which a model ends its answers, as the files beside its weights list them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trimtab {

/// The file of Hugging Face's that lists them, among other things.
inline constexpr char kGenerationConfigFile[] = "generation_config.json";

/// The config.json that a checkpoint's model came with, as it is kept beside the weights.
inline constexpr char kSourceConfigFile[] = "source_config.json";

/// `eos_token_id` of the folder's generation_config.json, or else of its config.json, or of the one
/// that is kept of where it came from: an id or a list of ids; none where neither says it. Throws
/// InputError with file and JSON path for what is no id of a vocabulary of `vocab_size`.
std::vector<int32_t> ReadEndTokens(const std::string& folder, int64_t vocab_size);

/// The files of `folder` that say such things, as they are, by the names under which a checkpoint
/// keeps them: kGenerationConfigFile and kSourceConfigFile. Throws InputError.
std::map<std::string, std::string> ReadGenerationFiles(const std::string& folder);

}  // namespace trimtab

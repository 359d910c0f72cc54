// Byte-level tokenizers from Hugging Face's tokenizer.json: those of GPT-2, Llama 3, Qwen and
// others.
#pragma once

#include <memory>
#include <string>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"

namespace trimtab {

/// `content` is that of a tokenizer.json, `path` names it in messages. Where `config` does not say
/// which token ends a document, it is the only special token there is. Added tokens whose ids are
/// not below `most_ids` are left out, with a warning. `files` are those that all this is from;
/// where there are none, they are made. Throws InputError with the JSON path of what is not
/// understood.
std::unique_ptr<Tokenizer> MakeHuggingFaceTokenizer(std::string content, const std::string& path,
                                                    TokenizerConfig config,
                                                    int64_t most_ids = kMostTokenIds,
                                                    std::vector<TokenizerFile> files = {});

}  // namespace trimtab

// Tokenizers that SentencePiece trained: those of Llama 2, Mistral, Gemma and others.
#pragma once

#include <memory>
#include <string>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"

namespace trimtab {

/// `content` is that of a tokenizer.model, `path` names it in messages. Where `config` does not say
/// them, a document ends with the model's own end of sentence, and prompts begin with its beginning
/// of sentence if it has one. Its added tokens are found by name, as control pieces are, or in any
/// text if they are not special; user-defined pieces that are special are control pieces.
/// `files` are those that all this is from; where there are none, they are made. Throws InputError.
std::unique_ptr<Tokenizer> MakeSentencePieceTokenizer(std::string content, const std::string& path,
                                                      TokenizerConfig config,
                                                      std::vector<TokenizerFile> files = {});

}  // namespace trimtab

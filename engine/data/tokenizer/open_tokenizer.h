// Finding a tokenizer: by a name on the command line, in a folder, beside a dataset.
#pragma once

#include <memory>
#include <string>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"

namespace trimtab {

/// `source` is "byte", a file tokenizer.json (Hugging Face) or tokenizer.model (SentencePiece),
/// known by how its name ends, or a folder with one; of both the latter, which is the original. A
/// folder with neither may have vocab.json and merges.txt (gpt2_files.h).
/// What tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja
/// in the same folder say holds too. Of a model with `most_ids` ids, added tokens beyond them are
/// left out, with a warning: its makers often add one for padding and no row for it. Their names
/// are text like any other. Throws InputError.
std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& source,
                                         int64_t most_ids = kMostTokenIds);

/// Whether `folder` has the files of a tokenizer.
bool HasTokenizer(const std::string& folder);

/// The files of the tokenizer in `folder` as they are, unread; none where it has none. Throws
/// InputError.
std::vector<TokenizerFile> ReadTokenizerFiles(const std::string& folder);

/// The files of the tokenizer that made the dataset PREFIX; none where the dataset does not say.
/// Throws InputError.
std::vector<TokenizerFile> ReadDatasetTokenizerFiles(const std::string& prefix);

/// The folder beside dataset PREFIX that has its tokenizer's files; those of "byte" have none.
std::string TokenizerFolderOf(const std::string& prefix);

/// The tokenizer that made the dataset PREFIX. Throws InputError when the dataset does not say.
std::unique_ptr<Tokenizer> OpenDatasetTokenizer(const std::string& prefix);

/// Writes the tokenizer's files into `folder`, each whole or not at all, and makes the folder if it
/// is not there. OpenTokenizer(folder) makes the same ids. Throws StorageError.
void WriteTokenizer(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace trimtab

// Corpus: text files to an indexed dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// kBytes is kText without the check that it is text.
enum class CorpusFormat { kText, kJsonl, kBytes };

/// What the name of a file says it is: JSONL if it ends in .jsonl or .json, in letters of either
/// case, else text.
CorpusFormat FormatOfName(const std::string& path);

/// What one document is in a file of text or bytes.
enum class DocumentSplit { kFile, kBlankLine };

struct CorpusOptions {
  std::vector<std::string> inputs;
  std::string prefix;                  // of the dataset to write
  std::optional<CorpusFormat> format;  // of every input; else each goes by its name
  DocumentSplit split = DocumentSplit::kFile;
  std::string json_key = "text";  // of the document's text in a JSONL line
  /// Called now and then with the bytes of input read so far; may throw to stop.
  std::function<void(int64_t bytes)> progress;
};

struct CorpusSummary {
  int64_t documents = 0;
  int64_t tokens = 0;  // end-of-document ids included
  int64_t input_bytes = 0;
};

/// Tokenises every document of every input, each followed by the end-of-document id. Documents
/// without text are left out. The dataset appears whole or not at all.
/// Throws StorageError, or InputError naming the file and the byte or line: an input that cannot be
/// read, text or JSONL that is not UTF-8 or holds NUL, a line that is not a JSON object with the
/// text, no document at all.
CorpusSummary BuildCorpus(const CorpusOptions& options, const Tokenizer& tokenizer);

}  // namespace trimtab

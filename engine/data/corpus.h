// Corpus: text files to an indexed dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/data/tokenizer.h"

namespace trimtab {

enum class CorpusFormat { kText, kJsonl };
/// What one document is in a text file.
enum class DocumentSplit { kFile, kBlankLine };

struct CorpusOptions {
  std::vector<std::string> inputs;
  std::string prefix;  // of the dataset to write
  CorpusFormat format = CorpusFormat::kText;
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
/// Throws InputError (unreadable input, a line that is not JSON, no document at all) naming file
/// and line, or StorageError.
CorpusSummary BuildCorpus(const CorpusOptions& options, const Tokenizer& tokenizer);

}  // namespace trimtab

#include "engine/data/corpus.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/indexed_dataset.h"

namespace trimtab {
namespace {

constexpr int64_t kProgressBytes = int64_t{4} << 20;

/// Reads the lines of one file, with the file and line number for messages.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : path_(path) {
    if (std::filesystem::is_directory(path)) {
      throw InputError(fmt::format("{}: is a folder; expected a file", path));
    }
    errno = 0;
    stream_.open(path, std::ios::binary);
    if (!stream_) {
      throw InputError(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
    }
  }

  /// The next line without its newline; `ended` says whether it had one.
  bool Next(std::string& line, bool& ended) {
    if (!std::getline(stream_, line)) {
      if (stream_.bad()) throw InputError(fmt::format("{}: cannot read it", path_));
      return false;
    }
    ended = !stream_.eof();
    ++number_;
    return true;
  }

  std::string where() const { return fmt::format("{}:{}", path_, number_); }

 private:
  std::string path_;
  std::ifstream stream_;
  int64_t number_ = 0;
};

class CorpusBuilder {
 public:
  CorpusBuilder(const CorpusOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        builder_(options.prefix, {tokenizer.name(), tokenizer.vocab_size(), tokenizer.eod_id()}) {}

  CorpusSummary Build() {
    for (const std::string& input : options_.inputs) {
      if (options_.format == CorpusFormat::kText) {
        AddText(input);
      } else {
        AddJsonl(input);
      }
    }
    if (builder_.documents() == 0) {
      throw InputError(fmt::format("{}: no text in it; expected at least one document",
                                   fmt::join(options_.inputs, ", ")));
    }
    builder_.Finish();
    summary_.documents = builder_.documents();
    summary_.tokens = builder_.tokens();
    return summary_;
  }

 private:
  void AddText(const std::string& path) {
    LineReader reader(path);
    std::string document;
    std::string line;
    bool ended = false;
    while (reader.Next(line, ended)) {
      Count(static_cast<int64_t>(line.size()) + (ended ? 1 : 0));
      const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
      if (options_.split == DocumentSplit::kBlankLine && blank) {
        AddDocument(document);
        document.clear();
        continue;
      }
      document += line;
      if (ended) document += '\n';
    }
    AddDocument(document);
  }

  void AddJsonl(const std::string& path) {
    LineReader reader(path);
    std::string line;
    bool ended = false;
    while (reader.Next(line, ended)) {
      Count(static_cast<int64_t>(line.size()) + (ended ? 1 : 0));
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) {
        throw InputError(fmt::format("{}: not JSON; expected one object a line", reader.where()));
      }
      const auto text = json.find(options_.json_key);
      if (text == json.end() || !text->is_string()) {
        throw InputError(
            fmt::format("{}: $.{}: missing or not a string; expected the document's text",
                        reader.where(), options_.json_key));
      }
      AddDocument(text->get_ref<const std::string&>());
    }
  }

  void AddDocument(const std::string& text) {
    if (text.empty()) return;
    tokens_.clear();
    tokenizer_.Encode(text, tokens_);
    tokens_.push_back(tokenizer_.eod_id());
    builder_.AddDocument(tokens_);
  }

  void Count(int64_t bytes) {
    summary_.input_bytes += bytes;
    if (options_.progress && summary_.input_bytes - reported_ >= kProgressBytes) {
      reported_ = summary_.input_bytes;
      options_.progress(reported_);
    }
  }

  const CorpusOptions& options_;
  const Tokenizer& tokenizer_;
  IndexedDatasetBuilder builder_;
  std::vector<int32_t> tokens_;
  CorpusSummary summary_;
  int64_t reported_ = 0;
};

}  // namespace

CorpusSummary BuildCorpus(const CorpusOptions& options, const Tokenizer& tokenizer) {
  return CorpusBuilder(options, tokenizer).Build();
}

}  // namespace trimtab

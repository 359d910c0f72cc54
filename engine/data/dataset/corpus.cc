#include "engine/data/dataset/corpus.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/data/dataset/indexed_dataset_format.h"
#include "engine/data/dataset/line_reader.h"
#include "engine/data/tokenizer/open_tokenizer.h"

namespace trimtab {
namespace {

constexpr int64_t kProgressBytes = int64_t{4} << 20;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr char kJsonLines[] = "JSON lines: one JSON object per line";

/// Why `line` is not a JSON object, and what was expected instead.
std::string JsonFault(const std::string& line, const nlohmann::json::parse_error& error) {
  const char first = line[line.find_first_not_of(" \t\r")];
  if (first == '[') {
    return fmt::format("this looks like a JSON array; expected {}", kJsonLines);
  }
  if (first == '{' && error.byte > line.size()) {
    return fmt::format("the object does not end on this line; expected {}, all on that line",
                       kJsonLines);
  }
  return fmt::format("not valid JSON at column {}; expected {}", error.byte, kJsonLines);
}

/// The object in a line of JSONL.
nlohmann::json ParseLine(const std::string& line, const LineReader& reader) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError(fmt::format("{}: {}", reader.where(), JsonFault(line, error)));
  } catch (const nlohmann::json::out_of_range&) {
    throw InputError(
        fmt::format("{}: a number is too large; expected {}", reader.where(), kJsonLines));
  }
  if (json.is_object()) return json;
  throw InputError(
      fmt::format("{}: a JSON {}; expected {}", reader.where(), json.type_name(), kJsonLines));
}

class CorpusBuilder {
 public:
  CorpusBuilder(const CorpusOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        builder_(options.prefix, {tokenizer.name(), tokenizer.vocab_size(), tokenizer.eod_id()}) {}

  CorpusSummary Build() {
    for (const std::string& input : options_.inputs) {
      const CorpusFormat format = options_.format.value_or(FormatOfName(input));
      if (format == CorpusFormat::kJsonl) {
        AddJsonl(input);
      } else {
        AddText(input, format == CorpusFormat::kText ? LineCheck::kUtf8 : LineCheck::kNone);
      }
    }
    if (builder_.documents() == 0) {
      throw InputError(fmt::format("{}: no text in it; expected at least one document",
                                   fmt::join(options_.inputs, ", ")));
    }
    // A dataset of bytes says all of its tokenizer in one word.
    if (tokenizer_.name() != "byte") WriteTokenizer(tokenizer_, TokenizerFolderOf(options_.prefix));
    builder_.Finish();
    summary_.documents = builder_.documents();
    summary_.tokens = builder_.tokens();
    return summary_;
  }

 private:
  void AddText(const std::string& path, LineCheck check) {
    LineReader reader(path, check, "text in UTF-8 (--format bytes takes any file as it is)",
                      /*name_line=*/false);
    std::string document;
    std::string line;
    bool ended = false;
    for (bool first = true; reader.Next(line, ended); first = false) {
      Count(static_cast<int64_t>(line.size()) + (ended ? 1 : 0));
      // Says that the file is UTF-8, and is no part of its text.
      if (first && check == LineCheck::kUtf8 && line.starts_with(kByteOrderMark)) {
        line.erase(0, kByteOrderMark.size());
      }
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
    LineReader reader(path, LineCheck::kUtf8, fmt::format("{}, in UTF-8", kJsonLines),
                      /*name_line=*/true);
    std::string line;
    bool ended = false;
    while (reader.Next(line, ended)) {
      Count(static_cast<int64_t>(line.size()) + (ended ? 1 : 0));
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const nlohmann::json json = ParseLine(line, reader);
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

CorpusFormat FormatOfName(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_json = extension == ".jsonl" || extension == ".json";
  return is_json ? CorpusFormat::kJsonl : CorpusFormat::kText;
}

CorpusSummary BuildCorpus(const CorpusOptions& options, const Tokenizer& tokenizer) {
  for (const std::string& input : options.inputs) {
    RequireNotInput(idx::BinPath(options.prefix), input);
    RequireNotInput(idx::IdxPath(options.prefix), input);
    RequireNotInput(idx::InfoPath(options.prefix), input);
  }
  return CorpusBuilder(options, tokenizer).Build();
}

}  // namespace trimtab

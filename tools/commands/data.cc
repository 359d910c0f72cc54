#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/data/dataset/corpus.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

class DataBuildCommand : public Command {
 public:
  std::string name() const override { return "data build"; }
  std::string summary() const override { return "tokenise text or JSONL into a dataset"; }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    flags.Texts("--input FILE ...", options_.inputs, "files of text or JSONL", FlagNeed::kRequired);
    flags.Text("--out PREFIX", options_.prefix,
               {"dataset to write", "Writes PREFIX.bin, PREFIX.idx and PREFIX.json."},
               FlagNeed::kRequired);
    flags.Choice(
        "--format", format_, {"auto", "text", "jsonl", "bytes"},
        {"format of the files",
         "text: UTF-8; jsonl: one object per line; bytes: any, unchecked; auto: .jsonl and "
         ".json files are JSONL, all others text."});
    flags.Choice(
        "--documents", documents_, {"file", "blank-line"},
        {"where a document of text or bytes ends", "At the end of its file, or at a blank line."});
    flags.Text("--json-key KEY", options_.json_key, "key of JSONL that holds the text");
    flags.Text("--tokenizer FILE", tokenizer_,
               {"tokenizer, or 'byte'",
                "A tokenizer.json (Hugging Face), a tokenizer.model (SentencePiece), or a folder "
                "with one. byte: one token per byte, and one that ends a document."});
  }

  int Run(const OutputOptions& output) override {
    if (options_.prefix.empty()) throw UsageError("--out is empty; expected the dataset's PREFIX");
    if (format_ == "text") options_.format = CorpusFormat::kText;
    if (format_ == "jsonl") options_.format = CorpusFormat::kJsonl;
    if (format_ == "bytes") options_.format = CorpusFormat::kBytes;
    options_.split = documents_ == "file" ? DocumentSplit::kFile : DocumentSplit::kBlankLine;
    RequireJsonlForKey();
    LogInfo("{}", FormatText());
    Progress progress(output);
    options_.progress = [&progress](int64_t bytes) {
      progress.Update({.label = "MiB read", .done = bytes / kMiB});
    };
    const CorpusSummary summary = BuildCorpus(options_, *OpenTokenizer(tokenizer_));
    progress.Clear();
    if (output.json) {
      PrintJson({{"schema_version", 1},
                 {"prefix", options_.prefix},
                 {"tokenizer", tokenizer_},
                 {"documents", summary.documents},
                 {"tokens", summary.tokens},
                 {"input_bytes", summary.input_bytes}});
    } else {
      Print(fmt::format("{}: {}, {} from {}\n", options_.prefix,
                        Counted(summary.documents, "document"), Counted(summary.tokens, "token"),
                        FormatBytes(summary.input_bytes)));
    }
    return 0;
  }

 private:
  void RequireJsonlForKey() const {
    if (!flags_->Given("--json-key")) return;
    for (const std::string& path : options_.inputs) {
      if (options_.format.value_or(FormatOfName(path)) == CorpusFormat::kJsonl) return;
    }
    throw UsageError("--json-key is for JSONL, and no input is; expected --format jsonl");
  }

  /// Which format the inputs are read as, and why.
  std::string FormatText() const {
    if (options_.format) return fmt::format("format: {}, as --format says", format_);
    const auto jsonl = std::count_if(
        options_.inputs.begin(), options_.inputs.end(),
        [](const std::string& path) { return FormatOfName(path) == CorpusFormat::kJsonl; });
    const auto text = std::ssize(options_.inputs) - jsonl;
    const std::string formats = text == 0 ? "jsonl"
                                : jsonl == 0
                                    ? "text"
                                    : fmt::format("jsonl for {}, text for {}", jsonl, text);
    return fmt::format("format: {}, from the names of the files (--format overrides this)",
                       formats);
  }

  const FlagSet* flags_ = nullptr;
  CorpusOptions options_;
  std::string format_ = "auto";
  std::string documents_ = "file";
  std::string tokenizer_ = "byte";
};

class DataInfoCommand : public Command {
 public:
  std::string name() const override { return "data info"; }
  std::string summary() const override { return "check a dataset and show what it holds"; }

  void Declare(FlagSet& flags) override {
    flags.Positional("PREFIX", prefix_, "the dataset: PREFIX.bin and PREFIX.idx",
                     FlagNeed::kRequired);
  }

  int Run(const OutputOptions& output) override {
    const IndexedDataset dataset(prefix_);
    const int64_t largest = dataset.tokens() > 0 ? dataset.MaxToken() : -1;
    const std::string type(Name(dataset.token_type()));
    if (dataset.info() && largest >= dataset.info()->vocab_size) {
      throw InputError(fmt::format("{}: holds token id {}; expected 0 to {}, as {}.json says",
                                   dataset.bin_path(), largest, dataset.info()->vocab_size - 1,
                                   prefix_));
    }
    const int64_t vocab_size = dataset.info() ? dataset.info()->vocab_size : largest + 1;
    const std::string tokenizer = dataset.info() ? dataset.info()->tokenizer : "unknown";
    if (output.json) {
      PrintJson({{"schema_version", 1},
                 {"prefix", prefix_},
                 {"tokenizer", tokenizer},
                 {"vocab_size", vocab_size},
                 {"token_type", type},
                 {"documents", dataset.documents()},
                 {"sequences", dataset.sequences()},
                 {"tokens", dataset.tokens()},
                 {"max_token", largest}});
    } else {
      PrintText(KeyValueText({{"tokenizer", tokenizer},
                              {"vocabulary", Thousands(vocab_size)},
                              {"stored as", type},
                              {"documents", Thousands(dataset.documents())},
                              {"tokens", Thousands(dataset.tokens())}}));
    }
    return 0;
  }

 private:
  std::string prefix_;
};

}  // namespace

std::unique_ptr<Command> MakeDataBuildCommand() { return std::make_unique<DataBuildCommand>(); }
std::unique_ptr<Command> MakeDataInfoCommand() { return std::make_unique<DataInfoCommand>(); }

}  // namespace trimtab

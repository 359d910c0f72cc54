#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/atomic_folder.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/data/tokenizer/end_tokens.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/infer/quantize/quantize_model.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"
#include "tools/cli/serving_flags.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"
#include "tools/validation/held_out.h"

namespace trimtab {
namespace {

/// Of the held-out text, before and after.
struct Perplexities {
  int64_t tokens = 0;
  double original = 0;
  double quantized = 0;
};

class QuantizeCommand : public Command {
 public:
  std::string name() const override { return "quantize"; }
  std::string summary() const override { return "round a model's weights to 8 or 4 bits"; }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    source_.Declare(flags);
    flags.Group("Rounding");
    flags.Choice(
        "--weights FORMAT", weights_, {"int4", "int8", "fp8"},
        {"what to round to", "int8 and fp8 have a scale per output, int4 has one per 32 inputs."});
    flags.Text(
        "--calibration FILE", calibration_,
        {"text by which int4 scales inputs", "So that the inputs that matter are rounded less."});
    flags.Integer("--calibration-tokens", calibration_tokens_, 2, int64_t{1} << 24,
                  "most tokens of --calibration");
    flags.Integer("--threads", threads_, 0, 4096, "worker threads [all cores]");
    held_out_.Declare(flags, "text to compare both models' perplexity on");
    flags.Group("Output");
    flags.Text("--out FOLDER", out_, "new or empty folder to write", FlagNeed::kRequired);
  }

  int Run(const OutputOptions& output) override {
    if (!calibration_.empty() && weights_ != "int4") {
      throw UsageError(
          fmt::format("--calibration is for int4; {} has a scale per output alone", weights_));
    }
    if (calibration_.empty() && flags_->Given("--calibration-tokens")) {
      throw UsageError("--calibration-tokens needs --calibration");
    }
    if (held_out_.file.empty() && flags_->Given("--held-out-tokens")) {
      throw UsageError("--held-out-tokens needs --held-out");
    }
    const std::unique_ptr<WeightSource> source = source_.OpenWeights();
    const std::unique_ptr<Tokenizer> tokenizer = source_.OpenTokenizerOf(*source);
    source_.EndTokensOf(*source);  // refuses ids that are none
    RequireOriginal(*source);
    const std::vector<int32_t> calibration =
        TokensOfFile(calibration_, calibration_tokens_, *tokenizer);
    const std::vector<int32_t> held_out = held_out_.Tokens(*tokenizer);
    // Refuses by the rule that speaks against serving the result.
    ReadingConfig(source->model(), Format(), DType::kF32, Threads());
    AtomicFolder folder(out_);
    CatchStopSignals();
    Progress progress(output);
    try {
      QuantizeOptions options;
      options.weights = Format();
      options.calibration = calibration;
      options.threads = static_cast<int>(Threads());
      options.progress = [&](int64_t done, int64_t all) {
        if (RequestedStop() != StopLevel::kNone) throw Stopped();
        progress.Update({.label = "parameters", .done = done, .total = all});
      };
      const QuantizeSummary summary = QuantizeModel(*source, options, folder.temporary());
      WriteTokenizer(*tokenizer, folder.temporary());
      for (const auto& [name, content] : ReadGenerationFiles(source_.folder())) {
        AtomicFile file(folder.temporary() + "/" + name);
        file.Append(std::string_view(content));
        file.Commit();
      }
      progress.Clear();
      std::optional<Perplexities> perplexities;
      if (!held_out.empty()) perplexities = Compare(*source, folder.temporary(), held_out);
      folder.Commit();
      Show(summary, perplexities, output);
    } catch (const Stopped&) {
      progress.Clear();
      LogWarning("stopped; nothing was written");
      return StopExitCode();
    }
    return 0;
  }

 private:
  WeightFormat Format() const {
    if (weights_ == "int8") return WeightFormat::kInt8;
    return weights_ == "fp8" ? WeightFormat::kF8 : WeightFormat::kInt4;
  }

  int64_t Threads() const {
    return threads_ > 0 ? threads_ : std::max(1u, std::thread::hardware_concurrency());
  }

  Perplexities Compare(const WeightSource& original, const std::string& quantized,
                       std::span<const int32_t> text) const {
    const auto perplexity = [&](const WeightSource& source) {
      return PerplexityOf(source, source.format(), DType::kF32, Threads(), text);
    };
    LogInfo("reading {} of {}", Counted(std::ssize(text), "token"), held_out_.file);
    return {.tokens = std::ssize(text),
            .original = perplexity(original),
            .quantized = perplexity(*OpenCheckpointWeights(quantized))};
  }

  void Show(const QuantizeSummary& summary, const std::optional<Perplexities>& perplexities,
            const OutputOptions& output) const {
    if (output.json) {
      nlohmann::json json = {{"schema_version", 1},
                             {"out", out_},
                             {"weights", weights_},
                             {"matrices", summary.matrices},
                             {"scaled_matrices", summary.scaled},
                             {"tensor_bytes", summary.tensor_bytes}};
      if (perplexities) {
        json["held_out_tokens"] = perplexities->tokens;
        json["perplexity"] = {{"original", perplexities->original},
                              {"quantized", perplexities->quantized}};
      }
      return PrintJson(json);
    }
    Print(fmt::format("{}: {} in {}, {} of them with scaled inputs, {}\n", out_,
                      Counted(summary.matrices, "parameter"), weights_, summary.scaled,
                      FormatBytes(summary.tensor_bytes)));
    if (!perplexities) return;
    Print(fmt::format("perplexity over {}: {:.4f}, of the original {:.4f} ({:+.2f} %)\n",
                      Counted(perplexities->tokens, "token"), perplexities->quantized,
                      perplexities->original,
                      100 * (perplexities->quantized / perplexities->original - 1)));
  }

  const FlagSet* flags_ = nullptr;
  SourceFlags source_;
  std::string weights_ = "int4";
  std::string out_;
  std::string calibration_;
  HeldOutFlags held_out_;
  int64_t calibration_tokens_ = 8192;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeQuantizeCommand() { return std::make_unique<QuantizeCommand>(); }

}  // namespace trimtab

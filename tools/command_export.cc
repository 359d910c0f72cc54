#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/train/export_weights.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/signals.h"
#include "tools/table.h"

namespace trimtab {
namespace {

/// Thrown through an export that the user has stopped.
struct Stopped {};

class ExportCommand : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override { return "write a checkpoint's weights for others to read"; }

  void Declare(FlagSet& flags) override {
    flags.Choice("--format", format_, {"hf"},
                 "hf: a Hugging Face folder, config.json and safetensors files");
    flags.Text("--load", checkpoint_, "checkpoint folder to take the weights from",
               FlagNeed::kRequired);
    flags.Text("--out", out_, "folder to write: a new or an empty one", FlagNeed::kRequired);
    flags.Choice("--dtype", dtype_, {"fp32", "bf16", "fp16"}, "what to round the weights to");
    flags.Bytes("--max-shard-bytes", options_.max_shard_bytes,
                "begin another file before one holds more than this, e.g. 5GB");
  }

  int Run(const OutputOptions& output) override {
    if (dtype_ == "bf16") options_.dtype = DType::kBf16;
    if (dtype_ == "fp16") options_.dtype = DType::kF16;
    CatchStopSignals();
    Progress progress(output);
    try {
      const HuggingFaceSummary summary =
          ExportToHuggingFace(checkpoint_, out_, options_, [&](int64_t bytes) {
            if (RequestedStop() != StopLevel::kNone) throw Stopped();
            progress.Update({.label = "MiB written", .done = bytes / kMiB});
          });
      progress.Clear();
      Show(summary, output);
    } catch (const Stopped&) {
      progress.Clear();
      LogWarning("stopped; nothing was written");
      return StopExitCode();
    }
    return 0;
  }

 private:
  void Show(const HuggingFaceSummary& summary, const OutputOptions& output) const {
    if (output.json) {
      PrintJson({{"schema_version", 1},
                 {"out", out_},
                 {"model_type", summary.model_type},
                 {"dtype", dtype_},
                 {"files", summary.files},
                 {"tensors", summary.tensors},
                 {"tensor_bytes", summary.tensor_bytes}});
    } else {
      Print(fmt::format("{}: a {} model, {} in {}, {}\n", out_, summary.model_type,
                        Counted(summary.tensors, "tensor"),
                        Counted(std::ssize(summary.files), "file"),
                        FormatBytes(summary.tensor_bytes)));
    }
  }

  std::string format_ = "hf";
  std::string checkpoint_;
  std::string out_;
  std::string dtype_ = "fp32";
  HuggingFaceOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace trimtab

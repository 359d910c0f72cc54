#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "engine/train/export_weights.h"
#include "export/megatron/options.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

constexpr char kConnections[] = "CUDA_DEVICE_MAX_CONNECTIONS";

class ExportCommand : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override {
    return "write weights or a configuration for other programs";
  }

  void Declare(FlagSet& flags) override {
    flags.Choice("--format", format_, {"hf", "megatron"},
                 {"what to write",
                  "hf: weights, as a Hugging Face folder with config.json and safetensors files; "
                  "megatron: a configuration, as options of Megatron-LM's pretrain_gpt.py."});
    flags.Text("--load FOLDER", checkpoint_, "hf: checkpoint whose weights to write");
    flags.Text("--config FILE", config_, "megatron: RUN.json or a search's report.json");
    flags.Text("--out PATH", out_, "hf: new or empty folder; megatron: file", FlagNeed::kRequired);
    flags.Choice("--dtype", dtype_, {"fp32", "bf16", "fp16"}, "hf: dtype of the weights");
    flags.Bytes("--max-shard-bytes", options_.max_shard_bytes,
                "hf: most bytes of a file, e.g. 5GB");
  }

  int Run(const OutputOptions& output) override {
    const bool megatron = format_ == "megatron";
    Require(checkpoint_.empty() == megatron, "--load", megatron);
    Require(config_.empty() != megatron, "--config", megatron);
    return megatron ? WriteConfiguration(output) : WriteWeights(output);
  }

 private:
  /// Each format has an input of its own.
  void Require(bool right, const char* flag, bool megatron) const {
    if (right) return;
    throw UsageError(fmt::format(
        "--format {}: {} is {}", format_, flag,
        megatron == (flag == std::string_view("--config")) ? "required" : "not for this format"));
  }

  int WriteConfiguration(const OutputOptions& output) const {
    RequireNotInput(out_, config_);
    const RunConfig run = LoadRunConfig(config_);
    RequireLegal(run);
    const std::vector<MegatronOption> options = ToMegatron(run);
    AtomicFile file(out_);
    file.Append(ToText(options));
    file.Commit();
    const int64_t connections = MegatronConnections(run.layout);
    if (output.json) {
      nlohmann::json environment = nlohmann::json::object();
      if (connections > 0) environment[kConnections] = fmt::format("{}", connections);
      nlohmann::json list = nlohmann::json::array();
      for (const MegatronOption& option : options) {
        list.push_back(option.name);
        for (const std::string& value : option.values) list.push_back(value);
      }
      PrintJson({{"schema_version", 1},
                 {"out", out_},
                 {"ranks", run.layout.world_size()},
                 {"environment", std::move(environment)},
                 {"options", std::move(list)}});
    } else {
      const std::string environment =
          connections > 0 ? fmt::format("{}={} ", kConnections, connections) : "";
      Print(fmt::format(
          "{}: {} for {}\nNext: {}xargs -a {} torchrun ... pretrain_gpt.py --data-path ...\n", out_,
          Counted(std::ssize(options), "option"), Counted(run.layout.world_size(), "rank"),
          environment, out_));
    }
    return 0;
  }

  int WriteWeights(const OutputOptions& output) {
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
  std::string config_;
  std::string out_;
  std::string dtype_ = "fp32";
  HuggingFaceOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace trimtab

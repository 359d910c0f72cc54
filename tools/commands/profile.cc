#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/numerics.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "profiler/fp8_scan.h"
#include "profiler/worker.h"
#include "tools/cli/command.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/launcher_flag.h"
#include "tools/cli/progress.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

/// Largest part first.
std::vector<std::pair<std::string, double>> SortedParts(const Measurement& measurement) {
  std::vector<std::pair<std::string, double>> parts(measurement.breakdown_s.begin(),
                                                    measurement.breakdown_s.end());
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return parts;
}

std::string MeasurementText(const RunConfig& run, const Measurement& measurement) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model",
       fmt::format("{} ({} parameters)", run.model.name, Thousands(run.model.parameter_count()))},
      {"layout", ToString(run.layout)},
      {"precision", std::string(Name(run.layout.numerics.precision))},
      {"optimizer state", OptimizerStateName(run.layout.numerics)},
      {"batch", fmt::format("{} sequences of {} tokens", run.global_batch, run.sequence_length)},
      {"step time",
       fmt::format("{} (MAD {}, {} steps)", FormatSeconds(measurement.step_time_s),
                   FormatSeconds(measurement.step_time_mad_s), measurement.steps_measured)},
      {"tokens/s", fmt::format("{:.1f}", measurement.tokens_per_s)},
      {"tokens/s/rank", fmt::format("{:.1f}", measurement.tokens_per_s_per_gpu)},
      {"model TFLOP/s/rank", fmt::format("{:.4f}", measurement.model_tflops_per_gpu)},
      {"peak memory", FormatBytes(measurement.peak_mem_bytes) + " on the fullest rank"}};
  for (const auto& [tag, bytes] : measurement.memory_bytes) {
    rows.emplace_back("  " + tag, FormatBytes(bytes));
  }
  if (!measurement.stragglers.empty()) {
    rows.emplace_back("slow ranks", InWords(measurement.stragglers));
  }
  if (measurement.power) {
    const MeasuredPower& power = *measurement.power;
    rows.emplace_back("power",
                      fmt::format("{:.0f} W, {:.3g} J per token, {:.0f} MHz, {:.0f} C", power.watts,
                                  power.joules_per_token, power.clock_mhz, power.temperature_c));
  }
  if (!measurement.losses.empty()) {
    rows.emplace_back("losses",
                      fmt::format("{:.4f} to {:.4f} over {} steps", measurement.losses.front(),
                                  measurement.losses.back(), measurement.losses.size()));
  }
  const auto parts = SortedParts(measurement);
  double total = 0;
  for (const auto& part : parts) total += part.second;
  if (total > 0) rows.emplace_back("one step of rank 0", "");
  for (const auto& [part, seconds] : parts) {
    rows.emplace_back("  " + part, fmt::format("{:>8}  {:4.1f} %", FormatSeconds(seconds),
                                               100 * seconds / total));
  }
  return KeyValueText(rows);
}

std::string Fp8ScanText(const Fp8Scan& scan, bool bold) {
  Table table({{"layer"},
               {"x", Align::kRight},
               {"W", Align::kRight},
               {"dy", Align::kRight},
               {"x W^T", Align::kRight},
               {"dy W", Align::kRight},
               {"proposed"}});
  const auto percent = [](double error) { return fmt::format("{:.2f} %", 100 * error); };
  for (const Fp8LayerErrors& each : scan.layers) {
    table.AddRow({each.name, percent(each.input), percent(each.weight), percent(each.gradient),
                  percent(each.output), percent(each.input_gradient),
                  each.worst_product() > scan.threshold ? "bf16" : "fp8"});
  }
  return table.ToText(bold) +
         fmt::format(
             "\nerrors of fp8 relative to bf16, the worst of {} steps; a layer should stay in bf16 "
             "if the error of a product exceeds {}\n{} of {} layers should; for "
             "RUN.json:\n\"fp8\": {}\n",
             scan.steps, percent(scan.threshold), scan.proposed.bf16_layers.size(),
             scan.layers.size(), ToJson(scan).at("fp8").dump());
}

class ProfileCommand : public Command {
 public:
  std::string name() const override { return "profile"; }
  std::string summary() const override { return "measure one configuration on this machine"; }

  void Declare(FlagSet& flags) override {
    constexpr int64_t kMaxSteps = std::numeric_limits<int32_t>::max();
    flags_ = &flags;
    run_flags_.Declare(flags);
    cluster_flags_.Declare(flags);
    flags.Group("Measuring");
    flags.Integer("--steps", options_.steps, 1, kMaxSteps, "measure at least this many steps");
    flags.Integer("--warmup", options_.warmup, 0, kMaxSteps, "warm-up steps before measuring");
    flags.Integer("--max-steps", options_.max_steps, 1, kMaxSteps,
                  "measure at most this many steps if the median does not settle");
    flags.Number("--min-seconds", options_.min_seconds, 0, 1e9,
                 "measure for at least this many seconds");
    flags.Number("--max-seconds", options_.max_seconds, 0, 1e9,
                 "start no further step after this many seconds");
    flags.Number("--stable-mad", options_.stable_mad, 0, 1e9,
                 "the median has settled once MAD / median is at most this");
    flags.Integer("--breakdown-visit", options_.breakdown_visit, 0, kMaxSteps,
                  "time one more step op by op after this visit; 0: never");
    flags.Text("--result FILE", result_,
               {"append results to this file, as the worker of a search",
                "Measures whenever stdin says \"visit ID\"."});
    flags.Group("Precision");
    flags.Switch(
        "--fp8-scan", fp8_scan_,
        {"compare fp8 with bf16 layer by layer instead",
         "Over --steps (default 4) steps of --data. Proposes which layers to keep in bf16."});
    flags.Number("--fp8-threshold", scan_.threshold, 0, 10,
                 "with --fp8-scan: relative error of a GEMM above which its layer stays in bf16");
    launcher_.Declare(flags);
    flags.ShortList({"--config", "--model", "--gbs", "--seq", "--layout", "--data", "--cluster",
                     "--launcher", "--steps", "--fp8-scan"});
  }

  int Run(const OutputOptions& output) override {
    if (!result_.empty()) {
      options_.max_steps = std::max(options_.max_steps, options_.steps);
      return RunTrial();
    }
    SetLimits();
    if (flags_->Given("--fp8-threshold") && !fp8_scan_) {
      throw UsageError("--fp8-threshold needs --fp8-scan");
    }
    const Cluster cluster = cluster_flags_.ResolveForRunning();
    const RunConfig run = run_flags_.Resolve(cluster);
    if (fp8_scan_) return RunFp8Scan(run, output);
    if (const auto code = launcher_.StartRanks(run, cluster.ranks_per_node)) return *code;
    LogInfo("measuring {} with {}", run.model.name, ToString(run.layout));
    const auto peak =
        cluster.profile.peak_flops.find(std::string(Name(run.layout.numerics.precision)));
    if (peak != cluster.profile.peak_flops.end() && cluster.device != DeviceKind::kCpu) {
      options_.peak_flops_per_rank = peak->second.value;
    }
    const Measurement measurement = Measure(run, options_);
    if (output.json) {
      nlohmann::json json = ToJson(measurement);
      json["schema_version"] = 1;
      json["run"] = ToJson(run);
      PrintJson(json);
    } else {
      PrintText(MeasurementText(run, measurement));
    }
    return 0;
  }

 private:
  /// Of a least and a most the one that is left out gives way to the other.
  void SetLimits() {
    if (options_.steps > options_.max_steps) {
      if (flags_->Given("--steps") && flags_->Given("--max-steps")) {
        throw UsageError(fmt::format("--max-steps {}: expected at least the {} of --steps",
                                     options_.max_steps, options_.steps));
      }
      const bool most = flags_->Given("--max-steps");
      (most ? options_.steps : options_.max_steps) = most ? options_.max_steps : options_.steps;
    }
    if (options_.min_seconds > options_.max_seconds) {
      if (flags_->Given("--max-seconds")) {
        throw UsageError(fmt::format("--max-seconds {}: expected at least the {} of --min-seconds",
                                     options_.max_seconds, options_.min_seconds));
      }
      options_.max_seconds = options_.min_seconds;
    }
  }

  int RunFp8Scan(const RunConfig& run, const OutputOptions& output) {
    if (flags_->Given("--steps")) scan_.steps = options_.steps;
    if (run.data.empty())
      LogWarning("--fp8-scan uses synthetic tokens; give --data to scan real ones");
    LogInfo("scanning {} on one rank in bf16", run.model.name);
    Progress progress(output);
    scan_.progress = [&](int64_t done, int64_t total) {
      progress.Update({.label = "steps", .done = done, .total = total, .best = ""});
    };
    const Fp8Scan scan = ScanFp8(run, scan_);
    progress.Clear();
    if (output.json) {
      nlohmann::json json = ToJson(scan);
      json["schema_version"] = 1;
      PrintJson(json);
    } else {
      PrintText(Fp8ScanText(scan, UseColor(output, STDOUT_FILENO)));
    }
    return 0;
  }

  /// The worker of a search: its driver checked the run, and reads the result from the file.
  int RunTrial() {
    const RunConfig run = run_flags_.Resolve(cluster_flags_.ResolveForRunning());
    return WorkerExitCode(RunWorker(result_, std::cin, TrainingVisits(run, options_)));
  }

  const FlagSet* flags_ = nullptr;
  RunFlags run_flags_;
  ClusterFlags cluster_flags_;
  LauncherFlag launcher_;
  MeasureOptions options_;
  bool fp8_scan_ = false;
  Fp8ScanOptions scan_;
  std::string result_;
};

}  // namespace

std::unique_ptr<Command> MakeProfileCommand() { return std::make_unique<ProfileCommand>(); }

}  // namespace trimtab

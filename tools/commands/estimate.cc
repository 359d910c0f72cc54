#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "cost_model/explain.h"
#include "cost_model/goodput.h"
#include "cost_model/hardware/numerics.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "tools/cli/command.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/serving_problem.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

std::string EstimateText(const RunConfig& run, const Cluster& cluster, const Estimate& estimate) {
  const Breakdown& parts = estimate.breakdown_s;
  const MemoryEstimate& memory = estimate.memory;
  const auto share = [&](double seconds) {
    return fmt::format("{:>8}  {:4.1f} %", FormatSeconds(seconds),
                       100 * seconds / estimate.step_time_s);
  };
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model",
       fmt::format("{} ({} parameters)", run.model.name, Thousands(run.model.parameter_count()))},
      {"cluster", fmt::format("{} ({})", cluster.name, cluster.profile.name)},
      {"software", fmt::format("{}: {}", cluster.stack.name, cluster.stack.description)},
      {"layout", fmt::format("{} ({})", ToString(run.layout), Counted(estimate.ranks, "rank"))},
      {"precision", fmt::format("{}: {}", Name(run.layout.numerics.precision),
                                DescribePrecision(run.layout.numerics.precision))},
      {"optimizer state",
       fmt::format("{}: {}", OptimizerStateName(run.layout.numerics),
                   DescribeOptimizerState(run.layout.numerics, run.optimizer.kind))},
      {"step time", fmt::format("{} ({} to {}, {})", FormatSeconds(estimate.step_time_s),
                                FormatSeconds(estimate.step_time_low_s),
                                FormatSeconds(estimate.step_time_high_s), Name(estimate.trust))},
  };
  for (const BreakdownPart& part : kBreakdownParts) {
    const double seconds = parts.*part.seconds;
    if (seconds != 0) rows.push_back({fmt::format("  {}", part.words), share(seconds)});
  }
  rows.insert(rows.end(),
              {{"tokens/s", fmt::format("{:.1f}", estimate.tokens_per_s())},
               {"tokens/s/rank", fmt::format("{:.1f}", estimate.tokens_per_s_per_gpu())},
               {"model TFLOP/s/rank", fmt::format("{:.4g}", estimate.model_tflops_per_gpu())},
               {"peak memory", FormatBytes(memory.peak_total) + " on the fullest rank"},
               {"  weights", FormatBytes(memory.weights)},
               {"  gradients", FormatBytes(memory.gradients)},
               {"  optimizer", FormatBytes(memory.optimizer)},
               {"  activations", FormatBytes(memory.activations)},
               {"  other", FormatBytes(memory.other())}});
  return KeyValueText(rows);
}

std::string TrainingText(const TrainingCost& cost, const Cluster& cluster) {
  const Goodput& goodput = cost.goodput;
  const auto known = [](double value, std::string text, const char* why_not) {
    return value > 0 ? std::move(text) : std::string(why_not);
  };
  return KeyValueText({
      {"tokens", ShortCount(cost.tokens)},
      {"tokens/day", ShortCount(cost.tokens_per_day())},
      {"days", fmt::format("{} ({} if nothing failed)", ShortCount(cost.days()),
                           ShortCount(cost.days() * goodput.share))},
      {"GPU hours", ShortCount(cost.gpu_hours)},
      {"price",
       known(cost.price, ShortCount(cost.price), "unknown: the cluster has no price_per_gpu_hour")},
      {"energy", known(cost.energy_j,
                       fmt::format("{} kWh, {:.0f} W per GPU", ShortCount(cost.kilowatt_hours()),
                                   PowerPerGpu(cluster)),
                       "unknown: the profile has no power_w")},
      {"goodput", fmt::format("{:.1f} %", 100 * goodput.share)},
      {"  failures", fmt::format("one in {}", FormatSeconds(goodput.mtbf_s))},
      {"  checkpoints", fmt::format("every {}, {} each", FormatSeconds(goodput.checkpoint_every_s),
                                    FormatSeconds(goodput.checkpoint_s))},
  });
}

nlohmann::json ExplanationJson(const std::vector<ExplainedPart>& parts) {
  nlohmann::json list = nlohmann::json::array();
  for (const ExplainedPart& part : parts) {
    list.push_back({{"what", part.what},
                    {"count", part.count},
                    {"seconds", part.seconds},
                    {"speed_of_light_s", part.light_s},
                    {"priced_by", part.priced_by}});
  }
  return list;
}

std::string ExplanationText(const std::vector<ExplainedPart>& parts, bool bold) {
  double total_s = 0;
  for (const ExplainedPart& part : parts) total_s += part.seconds;
  Table table({{"op or message"},
               {"count", Align::kRight},
               {"time", Align::kRight},
               {"share", Align::kRight},
               {"of the speed of light", Align::kRight},
               {"priced by"}});
  for (const ExplainedPart& part : parts) {
    const double light = part.seconds > 0 ? part.light_s / part.seconds : 0;
    table.AddRow({part.what, Thousands(part.count), FormatSeconds(part.seconds),
                  fmt::format("{:.1f} %", 100 * part.seconds / total_s),
                  fmt::format("{:.0f} %", 100 * light), part.priced_by});
  }
  return table.ToText(bold);
}

class EstimateCommand : public Command {
 public:
  std::string name() const override { return "estimate"; }
  std::string summary() const override {
    return "predict the step time and memory of one configuration";
  }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    DeclareFor(flags, for_);
    run_flags_.Declare(flags);
    cluster_flags_.Declare(flags);
    flags.Group("Prediction");
    flags.Choice("--tier", tier_, {"closed-form", "dry-run"},
                 {"how to predict",
                  "closed-form: counts operations, in microseconds; dry-run: goes through the real "
                  "step op by op."});
    flags.Text("--stack NAME", stack_,
               {"software that will train, e.g. torchtitan",
                "A name or a JSON file. The default is the run's own."});
    flags.Count("--tokens", tokens_,
                {"also predict training on this many tokens, e.g. 15T",
                 "Days, GPU hours, price, energy, and the cost of failures and checkpoints."});
    flags.Switch("--explain", explain_,
                 "list ops and messages with times and the source of prices");
    flags.Text("--trace FILE", trace_,
               {"write the timeline of every pipeline stage", "For chrome://tracing or Perfetto."});
    flags.ShortList({"--for", "--config", "--model", "--cluster", "--gbs", "--seq", "--layout",
                     "--stack", "--tokens", "--trace"});
  }

  int Run(const OutputOptions& output) override {
    if (!trace_.empty() && tier_ != "dry-run") {
      throw UsageError("--trace needs --tier dry-run: a closed form has no timeline");
    }
    if (!trace_.empty()) {
      RequireNotInput(trace_, run_flags_.config);
      RequireWritable(trace_);
    }
    Cluster cluster = cluster_flags_.Resolve();
    const RunConfig run = run_flags_.Resolve(cluster);
    cluster.stack = LoadSoftwareStack(flags_->Given("--stack") ? stack_ : run.stack);
    const Estimate estimate = Predict(run, cluster);
    if (!cluster.caveat.empty()) LogWarning("{}", cluster.caveat);
    if (output.json) {
      nlohmann::json json = ToJson(estimate);
      json["schema_version"] = 1;
      json["tier"] = tier_;
      json["cluster"] = cluster.name;
      json["stack"] = cluster.stack.name;
      json["precision"] = Name(run.layout.numerics.precision);
      json["optimizer_state"] = OptimizerStateName(run.layout.numerics);
      json["run"] = ToJson(run);
      if (tokens_ > 0) json["training"] = ToJson(CostOf(run, cluster, estimate));
      if (explain_) json["explanation"] = ExplanationJson(ExplainStep(run, cluster));
      PrintJson(json);
    } else {
      PrintText(EstimateText(run, cluster, estimate));
      if (tokens_ > 0) PrintText("\n" + TrainingText(CostOf(run, cluster, estimate), cluster));
      if (explain_) {
        PrintText("\n" +
                  ExplanationText(ExplainStep(run, cluster), UseColor(output, STDOUT_FILENO)));
      }
    }
    // A prediction of what cannot run is still worth seeing; the exit code says that it cannot.
    const int64_t limit = MemoryLimit(run, cluster);
    if (limit == 0 || estimate.memory.peak_total <= limit) return 0;
    throw InfeasibleError(fmt::format("needs {} of memory per rank; only {} is available",
                                      FormatBytes(estimate.memory.peak_total), FormatBytes(limit)));
  }

 private:
  Estimate Predict(const RunConfig& run, const Cluster& cluster) const {
    if (tier_ == "closed-form") return ClosedForm(run, cluster);
    const DryRunResult result = DryRunStep(run, cluster, /*with_timeline=*/!trace_.empty());
    if (!trace_.empty()) {
      WriteChromeTrace(result.timeline, trace_);
      LogInfo("wrote {} events to {}", result.timeline.size(), trace_);
    }
    return result.estimate;
  }

  TrainingCost CostOf(const RunConfig& run, const Cluster& cluster,
                      const Estimate& estimate) const {
    const TrainingCost cost = CostOfTraining(SpeedOf(run, estimate), cluster, tokens_);
    if (std::isfinite(cost.wall_s)) return cost;
    throw InfeasibleError(fmt::format(
        "--tokens: a run whose machines fail every {} and that saves its state in {} never ends",
        FormatSeconds(cost.goodput.mtbf_s), FormatSeconds(cost.goodput.checkpoint_s)));
  }

  /// Of one rank: the run's own, else the GPU's, else an equal share of the machine.
  static int64_t MemoryLimit(const RunConfig& run, const Cluster& cluster) {
    if (run.memory_per_rank_bytes > 0) return run.memory_per_rank_bytes;
    return MemoryOfRank(cluster, run.layout.world_size());
  }

  const FlagSet* flags_ = nullptr;
  std::string for_ = "training";
  RunFlags run_flags_;
  ClusterFlags cluster_flags_;
  std::string tier_ = "dry-run";
  bool explain_ = false;
  double tokens_ = 0;  // 0 = not asked
  std::string stack_ = SoftwareStack().name;
  std::string trace_;
};

}  // namespace

std::unique_ptr<Command> MakeEstimateCommand() { return std::make_unique<EstimateCommand>(); }

}  // namespace trimtab

#include <nlohmann/json.hpp>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "search/serving/serving_findings.h"
#include "search/serving/serving_report.h"
#include "tools/command.h"
#include "tools/serving_problem.h"
#include "tools/table.h"

namespace trimtab {
namespace {

std::string DimensionsText() {
  std::string text = "Keys of --layout:\n";
  for (const ServingDimension& each : ServingDimensions()) {
    text += fmt::format("  {:<10} {}\n", each.name, each.meaning);
  }
  return text;
}

class EstimateServingCommand : public Command {
 public:
  std::string name() const override { return "estimate"; }
  std::string summary() const override {
    return "predict the latencies, throughput and memory of one configuration that serves";
  }

  void Declare(FlagSet& flags) override {
    problem_.Declare(flags);
    flags.Text("--layout KEY=V,...", layout_,
               {"how it runs: tp=4,weights=fp8,sequences=64,...",
                "The keys are below. Those left out take their defaults."});
    flags.AfterHelp(DimensionsText);
    flags.ShortList({"--for", "--model", "--cluster", "--layout", "--workload", "--trace",
                     "--concurrency", "--rate", "--stack", "--memory-per-rank"});
  }

  int Run(const OutputOptions& output) override {
    const ServingProblem problem = problem_.Resolve();
    const ServingEvaluation estimate =
        EvaluateServing(problem, ParseServingCandidate(problem, layout_));
    if (!problem.cluster.caveat.empty()) LogWarning("{}", problem.cluster.caveat);
    if (output.json) {
      nlohmann::json json = ToJson(estimate);
      json["schema_version"] = 1;
      json["binds"] = WhatBinds(estimate);
      PrintJson(json);
    } else {
      PrintText(Text(problem, estimate));
    }
    return 0;
  }

 private:
  static std::string Text(const ServingProblem& problem, const ServingEvaluation& estimate) {
    const ServingCandidate& candidate = estimate.candidate;
    const ServingConfig& config = candidate.config;
    const ServingMemory& memory = estimate.memory;
    return KeyValueText(
               {{"model", fmt::format("{} ({} parameters)", problem.model.name,
                                      Thousands(problem.model.parameter_count()))},
                {"cluster",
                 fmt::format("{} ({})", problem.cluster.name, problem.cluster.profile.name)},
                {"load", problem.workload},
                {"configuration",
                 fmt::format("{} ({})", candidate.Key(), Counted(candidate.gpus(), "rank"))},
                {"memory", fmt::format("{} on the fullest rank", FormatBytes(memory.total()))},
                {"  weights", FormatBytes(memory.weights)},
                {"  cache", fmt::format("{}: {} tokens", FormatBytes(memory.cache),
                                        Thousands(config.cache_blocks * config.block_size))},
                {"  largest step", FormatBytes(memory.step)},
                {"  draft model", memory.draft > 0 ? FormatBytes(memory.draft) : "none"},
                {"tokens/s/rank", fmt::format("{:.1f}", TokensPerSecondAndGpu(estimate))},
                {"what binds", WhatBinds(estimate)}}) +
           "\n" + LoadReportText(estimate.prediction.report);
  }

  ServingProblemFlags problem_;
  std::string layout_;
};

}  // namespace

std::unique_ptr<Command> MakeEstimateServingCommand() {
  return std::make_unique<EstimateServingCommand>();
}

}  // namespace trimtab

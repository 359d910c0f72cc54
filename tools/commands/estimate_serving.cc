#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/infer/serving_json.h"
#include "search/serving/serving_findings.h"
#include "tools/cli/command.h"
#include "tools/cli/serving_problem.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

std::string DimensionsText() {
  std::string text = "Keys of --layout:\n";
  for (const ServingDimension& each : ServingDimensions()) {
    text += fmt::format("  {:<10} {}\n", each.name, each.meaning);
  }
  return text;
}

nlohmann::json EstimateJson(const ServingEvaluation& estimate) {
  const ServingPrediction& prediction = estimate.prediction;
  const ServingConfig& config = estimate.candidate.config;
  const ServiceSpeed speed = SpeedOf(prediction.report, estimate.candidate.gpus());
  nlohmann::json predicted = ToJson(prediction.report);
  predicted.erase("schema_version");
  return {{"key", estimate.candidate.Key()},
          {"replicas", config.layout.dp},
          {"prefill", config.prefill},
          {"gpus", estimate.candidate.gpus()},
          {"serving", ToJson(config)},
          {"predicted", std::move(predicted)},
          {"tokens_per_s_per_gpu", speed.per_gpu},
          {"tokens_per_s_per_user", speed.per_user},
          {"memory_bytes",
           {{"weights", estimate.memory.weights},
            {"cache", estimate.memory.cache},
            {"step", estimate.memory.step},
            {"draft", estimate.memory.draft},
            {"total", estimate.memory.total()}}},
          {"cache_tokens", config.cache_blocks * config.block_size},
          {"preemptions", prediction.preemptions},
          {"most_running", prediction.most_running},
          {"most_waiting", prediction.most_waiting},
          {"busy_share", prediction.busy_share},
          {"breakdown_s", BreakdownOf(prediction)},
          {"moved_requests", prediction.moved},
          {"proposed_tokens", prediction.proposed},
          {"accepted_tokens", prediction.accepted}};
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
      nlohmann::json json = EstimateJson(estimate);
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
                {"tokens/s/rank",
                 fmt::format("{:.1f}",
                             SpeedOf(estimate.prediction.report, candidate.gpus()).per_gpu)},
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

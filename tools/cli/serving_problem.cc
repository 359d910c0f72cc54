#include "tools/cli/serving_problem.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "engine/infer/serving_json.h"
#include "profiler/serving/serving_rates.h"
#include "tools/cli/machine_profile.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

// Of a cpu machine's memory, for an engine and nothing else of size.
constexpr double kMachineShare = 0.9;

/// Each a name of `valid`. Throws UsageError naming the flag.
template <typename T>
std::vector<T> Parse(const std::vector<std::string>& names, const std::vector<std::string>& valid,
                     const char* flag, T (*value)(const std::string&)) {
  std::vector<T> values;
  for (const std::string& name : names) {
    if (std::find(valid.begin(), valid.end(), name) == valid.end()) {
      throw UsageError(
          fmt::format("{}: '{}'; expected some of {}", flag, name, fmt::join(valid, ", ")));
    }
    values.push_back(value(name));
  }
  return values;
}

const ServingEngine& EngineNamed(const std::string& name) {
  std::vector<std::string> names;
  for (const ServingEngine& each : BuiltinServingEngines()) {
    if (each.policy != PromptPolicy::kChunked) continue;
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw UsageError(fmt::format(
      "--stack: '{}'; expected an engine that cuts prompts and runs them beside answers: {}", name,
      fmt::join(names, ", ")));
}

/// What weights and caches are stored in unless the user says otherwise.
std::vector<std::string> UsualFormats(const Cluster& cluster) {
  if (cluster.device != DeviceKind::kCuda) return {"fp32"};
  if (!cluster.profile.peak_flops.contains("bf16")) return {"fp16"};
  return {"bf16", "fp8"};
}

/// The file that keeps the rates of this machine; empty where the environment names no folder for
/// it.
std::string ServingRatesPath() {
  const std::string profile = MachineProfilePath();
  constexpr std::string_view kEnd = ".json";
  return profile.empty() ? "" : profile.substr(0, profile.size() - kEnd.size()) + "-serving.json";
}

}  // namespace

void DeclareFor(FlagSet& flags, std::string& value) {
  flags.Group("Problem");
  flags.Choice(kForFlag, value, {"training", "serving"},
               {"what to plan", "Each has flags of its own: see --for serving --help."});
}

void ServingProblemFlags::Declare(FlagSet& flags) {
  flags_ = &flags;
  DeclareFor(flags, for_);
  flags.Text("--model MODEL", model_,
             {"preset, model JSON or Hugging Face folder",
              "'trimtab models' lists the presets. A config.json will do."},
             FlagNeed::kRequired);
  cluster_.Declare(flags);
  workload_.Declare(flags);
  flags.Group("Engine");
  flags.List("--weights FORMAT,...", weights_,
             {"formats that weights may have [bf16,fp8 on GPUs, else fp32]",
              "Of fp32, bf16, fp16, fp8, int8, int4."});
  flags.List("--cache FORMAT,...", caches_,
             {"formats that the KV cache may have [bf16,fp8 on GPUs, else fp32]",
              "Of fp32, bf16, fp16, fp8, int8."});
  flags.Text("--stack NAME", stack_, "engine on the GPUs: trimtab, vllm, ...");
  flags.Bytes("--memory-per-rank", memory_per_rank_bytes_, "memory limit of each rank, e.g. 8GiB");
  flags.Text("--draft MODEL", draft_,
             {"smaller model that may propose tokens; needs --draft-acceptance",
              "As --model takes it, with the same vocabulary."});
  flags.Number(
      "--draft-acceptance", draft_acceptance_, 0, 1,
      {"acceptance rate of the draft's tokens",
       "Of each token, given that those before it were accepted. 'trimtab generate' prints "
       "it for texts."});
  flags.Number("--lookup-acceptance", lookup_acceptance_, 0, 1,
               "acceptance rate of prompt-lookup tokens; lookup is off without it");
}

void ServingProblemFlags::ResolveSpeculation(ServingProblem& problem) const {
  if (draft_.empty() != !flags_->Given("--draft-acceptance")) {
    throw UsageError(draft_.empty() ? "--draft-acceptance needs --draft"
                                    : "--draft needs --draft-acceptance, the share of its tokens "
                                      "that are accepted");
  }
  if (!draft_.empty()) problem.draft = LoadModelConfig(draft_);
  problem.draft_acceptance = draft_acceptance_;
  if (flags_->Given("--lookup-acceptance")) problem.lookup_acceptance = lookup_acceptance_;
}

void ServingProblemFlags::Check() const {
  workload_.Load();
  EngineNamed(stack_);
}

ServingProblem ServingProblemFlags::Resolve(const SeedStudy* seed) const {
  ServingProblem problem;
  problem.model = LoadModelConfig(model_);
  problem.load = workload_.Load();
  problem.workload = workload_.Describe();
  ResolveSpeculation(problem);
  const ServingEngine& engine = EngineNamed(stack_);
  problem.stack = stack_;
  problem.cluster =
      seed != nullptr ? cluster_.ResolvePricedBy(seed->profile, seed->path) : cluster_.Resolve();
  const bool cuda = problem.cluster.device == DeviceKind::kCuda;
  const std::vector<std::string> usual = UsualFormats(problem.cluster);
  problem.weights =
      Parse(weights_.empty() ? usual : weights_, WeightNames(), "--weights", WeightFormatOf);
  problem.caches = Parse(caches_.empty() ? usual : caches_, CacheNames(), "--cache", CacheType);
  const HardwareProfile& profile = problem.cluster.profile;
  const double room =
      cuda ? engine.memory_share.value * VisibleMemory(profile) - engine.memory_bytes.value
           : kMachineShare * static_cast<double>(problem.cluster.memory_bytes);
  problem.memory_bytes = static_cast<int64_t>(room);
  if (memory_per_rank_bytes_ > 0) {
    problem.memory_bytes = std::min(problem.memory_bytes, memory_per_rank_bytes_);
  }
  if (!cuda) {
    problem.cluster.caveat.clear();  // rates are measured here, whatever the profile says
    const auto kept = std::make_shared<KeptServingRates>(ServingRatesPath());
    problem.rates = [kept](const ServingConfig& config, const HardwareProfile&) {
      return kept->Of(config);
    };
    return problem;
  }
  problem.rates = [engine](const ServingConfig& config, const HardwareProfile& priced) {
    return ServingRatesOf(config, priced, engine);
  };
  return problem;
}

std::string LoadReportText(const LoadReport& report) {
  Table table({{"milliseconds"},
               {"mean", Align::kRight},
               {"p50", Align::kRight},
               {"p90", Align::kRight},
               {"p95", Align::kRight},
               {"p99", Align::kRight}});
  const auto row = [&table](const char* name, const LatencySummary& summary) {
    table.AddRow({name, fmt::format("{:.2f}", summary.mean), fmt::format("{:.2f}", summary.p50),
                  fmt::format("{:.2f}", summary.p90), fmt::format("{:.2f}", summary.p95),
                  fmt::format("{:.2f}", summary.p99)});
  };
  row("time to first token", report.ttft);
  row("time per token after it", report.tpot);
  row("between two texts", report.itl);
  row("end to end", report.e2e);
  return table.ToText(/*bold=*/false) +
         fmt::format(
             "\n{} in {:.2f} s, {} failed: {:.2f} requests/s, {:.1f} output tokens/s, "
             "goodput {:.2f} requests/s\n",
             Counted(report.requests, "request"), report.duration_s, report.failed,
             report.requests_per_s(), report.output_tokens_per_s(), report.goodput());
}

}  // namespace trimtab

#include "tools/commands/search_command.h"

#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/scratch_folder.h"
#include "engine/base/log.h"
#include "engine/config/model/model_limits.h"
#include "search/page/report_folder.h"
#include "search/report.h"
#include "search/space/gpu_counts.h"
#include "search/study/study_file.h"
#include "tools/cli/signals.h"
#include "tools/cli/version.h"
#include "tools/dashboard/dashboard.h"
#include "tools/search/search_progress.h"
#include "tools/search/search_text.h"
#include "tools/search/space_text.h"

namespace trimtab {
namespace {

/// "1%" or "0.01" as a share, from 0 to less than 1. Throws UsageError naming `flag`.
double ParsePercent(const std::string& text, const std::string& flag) {
  const bool percent = text.ends_with('%');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end) / (percent ? 100 : 1);
  const bool whole = end != text.c_str() && std::string(end) == (percent ? "%" : "");
  if (!whole || !(value >= 0 && value < 1)) {
    throw UsageError(fmt::format("{}: \"{}\": expected a share such as 1% or 0.01", flag, text));
  }
  return value;
}

}  // namespace

void SearchCommand::Declare(FlagSet& flags) {
  flags_ = &flags;
  const Words words = this->words();
  options_.study_path = words.study_path;
  DeclareProblem(flags);
  DeclareSpaceOfAll(flags, words);
  flags.Group("Objective");
  flags.Choice("--objective", objective_, words.objectives, words.objective);
  flags.Text("--require LIMIT,...", require_, words.require);
  flags.Text("--indifference", indifference_, "differences below this are ties, e.g. 1%");
  DeclareMeasuringOfAll(flags);
  launcher_.Declare(flags);
  flags.Group("Study");
  flags.Text("--study FILE", options_.study_path, "SQLite file that keeps everything");
  flags.Switch("--resume", options_.study.resume, "go on with the study if it is there");
  flags.Text(
      "--seed-study FILE", seed_study_,
      {"study of another problem on this machine", "Takes over its prices and measurements."});
  flags.Group("Output");
  flags.Switch("--dashboard", dashboard_,
               {"serve a live page of the search on 127.0.0.1",
                "Logs its address. It ends with the search; 'trimtab dashboard' shows the study "
                "again."});
  flags.Text("--report FOLDER", report_, "write report.json and REPORT.html here");
  flags.Integer("--top", top_, 1, kMax32, "rows of the ranking to print");
  flags.ShortList(words.short_list);
}

void SearchCommand::DeclareSpaceOfAll(FlagSet& flags, const Words& words) {
  flags.Group("Space");
  flags.Text("--gpus RANGE", gpus_,
             {"numbers of GPUs to choose among [all of the cluster's]",
              "64..1024 (64, 128, ... 1024), or 64,96."});
  flags.Integer("--max-ranks", max_ranks_, 1, kMaxWorld / 2, "most ranks [the cluster's]");
  DeclareSpace(flags);
  flags.List("--fix KEY=V,...", fixed_, "values that every candidate has: " + words.fix);
  flags.List("--allow KEY=V,...", allowed_,
             {"values that candidates may have: " + words.allow, "A key may have several values."});
  flags.List("--forbid KEY=V,...", forbidden_, "values that no candidate has: " + words.forbid);
  flags.Switch("--space", only_space_,
               {"print the space and search nothing",
                "The dimensions, their values and how many candidates each rule removes."});
}

void SearchCommand::DeclareMeasuringOfAll(FlagSet& flags) {
  flags.Group("Measuring");
  flags.Integer("--prove", options_.race.prove_count, 0, kMax32,
                {"measure at least N candidates; 0: predict only",
                 "Measures others as long as they may be better."});
  DeclareMeasuring(flags);
  flags.Integer("--rounds", options_.race.most_rounds, 1, kMax32,
                {"most rounds of the race", "Exit code 5 if undecided."});
  flags.Integer("--visits", options_.most_visits, 1, kMax32,
                {"most visits of all candidates together [no limit]", "Exit code 5 if undecided."});
  flags.Number("--visit-limit", options_.trial_time_limit_s, 0, 1e9,
               "seconds after which a visit is killed; 0: never");
  flags.Positive("--budget SECONDS", options_.budget_s, 1e9,
                 {"stop after this many seconds [no limit]",
                  "Also ends the walk of a large space. Exit code 5 if undecided."});
  flags.Positive("--gpu-minutes", options_.gpu_minutes, 1e9,
                 {"GPU minutes that visits may take in all [no limit]",
                  "On a cpu, minutes of ranks. Exit code 5 if undecided."});
}

int SearchCommand::Run(const OutputOptions& output) {
  // What can be refused is refused before the minute that measuring the machine may take.
  options_.race.objective = ParseObjective(objective_);
  options_.race.indifference = ParsePercent(indifference_, "--indifference");
  if (launcher_.name() == "kubernetes") {
    throw UsageError(
        "--launcher kubernetes: a search starts its visits itself, and nothing is sent to "
        "Kubernetes from here; expected another launcher (profile and train print a job for "
        "kubectl apply with --plan)");
  }
  options_.launcher = launcher_.Make();
  CheckFlags();
  if (only_space_) return PrintSpace(output);
  const bool measures = options_.race.prove_count > 0;
  const bool keeps_study = words().keeps_every_study || measures || flags_->Given("--study");
  std::optional<ScratchFolder> scratch;
  if (!keeps_study && !options_.study.resume) {
    options_.study_path = scratch.emplace().path() + "/study.db";
  }
  if (!launcher_.plan()) RequireNewOrResumed(options_.study_path, options_.study.resume);
  if (!report_.empty()) PrepareReport(report_);
  std::optional<SeedStudy> seed;
  if (!seed_study_.empty()) seed = LoadSeedStudy(seed_study_, words().workload);
  const std::unique_ptr<Workload> workload = MakeWorkload(output, seed ? &*seed : nullptr);
  if (seed) {
    seed->RequireSameMachine(workload->cluster());
    LogInfo("prices and {} measured steps are those of {}", seed->residuals.size(), seed_study_);
    options_.study.seed = std::move(seed->residuals);
  }
  options_.study.program_version = kVersion;
  CatchStopSignals();
  return launcher_.plan() ? PrintPlan(*workload, output) : Search(*workload, output);
}

int SearchCommand::Search(Workload& workload, const OutputOptions& output) {
  std::optional<Dashboard> dashboard;
  if (dashboard_) {
    dashboard.emplace(options_.study_path, /*port=*/0);
    LogInfo("dashboard: {}", dashboard->url());
  }
  SearchProgress events(output, workload.cluster().caveat);
  std::optional<SearchResult> result;
  try {
    result = RunSearch(workload, options_, events);
  } catch (const WalkStopped&) {
    events.Clear();
    LogWarning("stopped before a candidate that fits was found; --resume begins again with {}",
               options_.study_path);
    return StopExitCode() != 0 ? StopExitCode() : static_cast<int>(ExitCode::kPartial);
  }
  events.Clear();
  return Show(*result, output);
}

int SearchCommand::Show(const SearchResult& result, const OutputOptions& output) const {
  if (!report_.empty()) {
    WriteReport(result, report_);
    LogInfo("wrote the report to {}", report_);
  }
  if (output.json) {
    PrintJson(ReportJson(result));
  } else {
    PrintText(SearchText(result, top_, UseColor(output, STDOUT_FILENO)));
  }
  if (result.partial) {
    LogWarning("partial result: {}; --resume goes on with {}", result.partial_reason,
               options_.study_path);
  }
  if (StopExitCode() != 0) return StopExitCode();
  if (result.serving && !result.serving->relaxations.empty()) {
    throw InfeasibleError(fmt::format("nothing meets {}; {} comes closest, and would meet {}",
                                      require_, result.recommended_candidate().key,
                                      fmt::join(result.serving->relaxations, ", ")));
  }
  return result.partial ? static_cast<int>(ExitCode::kPartial) : 0;
}

int SearchCommand::PrintPlan(Workload& workload, const OutputOptions& output) {
  const Cluster& cluster = workload.cluster();
  if (cluster.nodes > 1 && !options_.launcher->elsewhere()) {
    throw UsageError(fmt::format(
        "--plan: the cluster {} has {} nodes; expected a --launcher that starts ranks on other "
        "machines than this one",
        cluster.name, cluster.nodes));
  }
  SearchOptions unproved = options_;
  unproved.race.prove_count = 0;
  unproved.launcher = MakeLauncher("inproc", {});  // no scheduler is asked for leftovers
  const ScratchFolder folder;
  unproved.study_path = folder.path() + "/study.db";
  SearchProgress events(output, cluster.caveat);
  const SearchResult ranked = RunSearch(workload, unproved, events);
  events.Clear();
  if (options_.race.prove_count == 0) {
    LogWarning("--plan: --prove 0 measures nothing, so nothing would be sent");
  }
  nlohmann::json plans = nlohmann::json::array();
  for (const LaunchPlan& plan : PlanTrials(workload, options_, ranked)) {
    if (!output.json) Print(ToText(plan) + "\n");
    nlohmann::json files = nlohmann::json::array();
    for (const PlannedFile& file : plan.files) {
      files.push_back({{"path", file.path}, {"text", file.text}});
    }
    plans.push_back({{"files", files}, {"reserve", plan.reserve}, {"start", plan.start}});
  }
  if (output.json) PrintJson({{"schema_version", 1}, {"plans", plans}});
  return 0;
}

int SearchCommand::PrintSpace(const OutputOptions& output) {
  const SpaceDescription space = DescribeSpace();
  if (output.json) {
    PrintJson(SpaceJson(space));
  } else {
    PrintText(SpaceText(space, UseColor(output, STDOUT_FILENO)));
  }
  return 0;
}

std::vector<Narrowing> SearchCommand::Narrowings() const {
  return ParseAllNarrowings(fixed_, allowed_, forbidden_, keys());
}

std::vector<int64_t> SearchCommand::Gpus(const Cluster& cluster) const {
  if (!flags_->Given("--gpus")) return {};
  return ParseGpuCounts(gpus_, cluster);
}

}  // namespace trimtab

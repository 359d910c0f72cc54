#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/model_limits.h"
#include "engine/families/load_config.h"
#include "search/page/report_folder.h"
#include "search/report.h"
#include "search/seed_study.h"
#include "search/space/gpu_counts.h"
#include "search/study/study_file.h"
#include "search/walk/walkers.h"
#include "tools/command.h"
#include "tools/common_flags.h"
#include "tools/launcher_flag.h"
#include "tools/progress.h"
#include "tools/proposal_flags.h"
#include "tools/scratch_folder.h"
#include "tools/search_text.h"
#include "tools/serving_problem.h"
#include "tools/signals.h"
#include "tools/space_text.h"
#include "tools/version.h"

namespace trimtab {
namespace {

/// Shows what a search does, and passes Ctrl-C on to it.
class SearchProgress : public SearchEvents {
 public:
  SearchProgress(const OutputOptions& output, const std::string& caveat)
      : progress_(output), caveat_(caveat) {}

  void OnResume(int64_t measured, int64_t ingested) override {
    progress_.Event(
        fmt::format("resuming: {} candidates measured, {} results taken in", measured, ingested));
  }
  void OnWalk(const WalkProgress& walk) override {
    const std::string best =
        walk.best_tokens_per_s > 0 ? fmt::format("{:.0f} tokens/s", walk.best_tokens_per_s) : "";
    const std::string label = fmt::format("walking the space: {} branches open, gap {:.0f} %",
                                          walk.open_branches, 100 * walk.gap);
    progress_.Update({.label = label, .done = walk.settled, .best = best});
    const auto now = Clock::now();
    if (progress_.shows_bar() || now - last_walk_ < kWalkLines) return;
    last_walk_ = now;
    progress_.Event(fmt::format("{}, {} candidates settled{}{}", label, walk.settled,
                                best.empty() ? "" : ", best ", best));
  }
  void OnSpace(const SpaceSummary& summary) override {
    if (!caveat_.empty()) LogWarning("{}", caveat_);
    progress_.Event(fmt::format("{} candidates, {} looked at, {} fit", summary.size,
                                summary.visited, summary.feasible));
  }
  void OnDryRun(int64_t done, int64_t total) override {
    progress_.Update({.label = "dry runs", .done = done, .total = total});
  }
  void OnDryRunsEnd(int64_t done) override {
    if (!progress_.shows_bar()) progress_.Event(fmt::format("{} dry runs done", done));
  }
  void OnVisitStart(const CandidateRecord& /*candidate*/, const RaceProgress& race) override {
    Show(race);
  }
  void OnVisitEnd(const CandidateRecord& candidate, const TrialOutcome& outcome,
                  const RaceProgress& race) override {
    progress_.Event(VisitText(candidate, outcome, race));
    Show(race);
  }
  void OnRoundEnd(const RoundRecord& round, const RaceProgress& race) override {
    progress_.Event(RoundText(round, race));
    Show(race);
  }
  void OnRaceEnd(double trials_s, double own_s) override {
    progress_.Event(fmt::format("trials took {}, the search itself {} ({:.1f} %)",
                                FormatSeconds(trials_s), FormatSeconds(own_s),
                                100 * own_s / trials_s));
  }
  StopRequest stop_requested() override {
    Show(last_);
    switch (RequestedStop()) {
      case StopLevel::kNone:
        return StopRequest::kNone;
      case StopLevel::kDrain:
        return StopRequest::kDrain;
      case StopLevel::kCancel:
        return StopRequest::kCancel;
    }
    return StopRequest::kNone;
  }
  void Clear() { progress_.Clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Without a terminal, a walk tells how far it is as often as this.
  static constexpr auto kWalkLines = std::chrono::seconds(10);

  /// A race has no total: it takes as many rounds as telling the candidates apart does.
  void Show(const RaceProgress& race) {
    last_ = race;
    if (race.round == 0) return;
    progress_.Update({.label = fmt::format("round {}, {} racing", race.round, race.racing),
                      .done = race.visits,
                      .failed = race.failed,
                      .running = 1,
                      .best = race.best_tokens_per_s > 0
                                  ? fmt::format("{:.0f} tokens/s", race.best_tokens_per_s)
                                  : ""});
  }

  Progress progress_;
  const std::string& caveat_;
  RaceProgress last_;
  Clock::time_point last_walk_ = Clock::now();
};

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

class SearchCommand : public Command {
 public:
  std::string name() const override { return "search"; }
  std::string summary() const override {
    return "find the fastest configuration: rank, prove, recommend";
  }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    DeclareFor(flags, for_);
    Problem& problem = options_.problem;
    flags.Text(
        "--model", model_,
        "preset (see 'trimtab models'), model JSON, or Hugging Face config.json or its folder");
    proposal_.Declare(flags);
    cluster_flags_.Declare(flags);
    flags.List("--gbs", global_batches_,
               "global batch, in sequences; or several to choose among, e.g. 512,1024");
    flags.Integer("--seq", problem.sequence_length, 1, kMax32, "sequence length, in tokens");
    flags.List("--precision", precisions_,
               "precisions to consider: fp32, tf32, bf16, fp16, fp8, auto (what the device is best "
               "at: bf16,fp8 on GPUs); on GPUs auto if left out");
    flags.Text("--optimizer", optimizer_, fmt::format("{} [adamw]", OptimizerKindNames()));
    flags.List("--optimizer-state", problem.optimizer_states,
               "optimizer states to consider: full (fp32 master, moments, gradients), reduced "
               "(16-bit remainder as master, bf16 moments, fp32 gradients), minimal (as reduced, "
               "bf16 gradients), MASTER/MOMENTS/GRADS, auto (all)");
    flags.Choice("--objective", objective_, {"throughput", "memory", "cost"},
                 "what best means: most tokens a second, least memory, least GPU time a token");
    flags.Bytes("--memory-per-rank", problem.memory_per_rank_bytes,
                "limit of each rank, e.g. 8GiB");
    flags.Integer("--max-ranks", problem.max_ranks, 1, kMaxWorld / 2,
                  "most ranks; the cluster's if left out");
    flags.Text("--gpus", gpus_,
               "numbers of GPUs to choose among: 64..1024 (64, 128, ... 1024) or 64,96; all of the "
               "cluster's if left out");
    flags.Count("--tokens", problem.tokens,
                "tokens to train on, e.g. 300B, for the time and price of each number of GPUs");
    flags.Text(
        "--require", require_,
        "what the run must keep to, of headroom>=8GiB (free memory of each rank), gpus<=512, "
        "nodes<=64, and of days<=30 and price<=2M (as predicted, with --tokens; the report says "
        "when what is recommended does not, as measured), separated by commas");
    flags.Integer("--max-micro-batch", problem.max_micro_batch, 1, kMax32, "largest micro batch");
    flags.List("--fix", fixed_, "values that every candidate has: tp=8,schedule=1f1b");
    flags.List("--allow", allowed_,
               "values that candidates may have, by key: tp=4,8,recompute=none,full");
    flags.List("--forbid", forbidden_, "values that no candidate has: zero=3,cp_comm_type=p2p");
    flags.Switch("--space", only_space_,
                 "print the dimensions, their values and what each rule removes; search nothing");
    flags.Integer("--top", top_, 1, kMax32, "rows of the ranking to print");
    flags.Integer("--dry-runs", options_.dry_run_count, 0, kMax32,
                  "candidates that get a dry run after the closed form");
    flags.Integer("--prove", options_.race.prove_count, 0, kMax32,
                  "candidates to measure in any case; others follow while they may be better; 0 = "
                  "predict only");
    flags.Text("--indifference", indifference_, "a difference of less than this is a tie, e.g. 1%");
    flags.Integer("--rounds", options_.race.most_rounds, 1, kMax32,
                  "rounds of visits after which the race ends (exit code 5)");
    flags.Integer("--visits", options_.most_visits, 1, kMax32,
                  "visits after which none starts (exit code 5); no limit if left out");
    flags.Integer("--visit-steps", options_.visit.steps, 1, kMax32,
                  "steps a visit measures at least");
    flags.Number("--visit-seconds", options_.visit.min_seconds, 0, 1e9,
                 "seconds a visit measures at least");
    flags.Number("--visit-limit", options_.trial_time_limit_s, 0, 1e9,
                 "seconds after which a visit is killed; 0 = never");
    flags.Positive(
        "--budget", options_.budget_s, 1e9,
        "stop measuring, and walking a large space, after this many seconds (exit code 5 "
        "if undecided); no limit if left out");
    flags.Positive(
        "--gpu-minutes", options_.gpu_minutes, 1e9,
        "GPU minutes, on a cpu minutes of ranks, that the visits of this command may take "
        "in all; then none starts (exit code 5); no limit if left out");
    launcher_.Declare(flags);
    flags.Text("--data", problem.data,
               "dataset PREFIX of trials and winner; synthetic if left out");
    flags.Integer("--steps", problem.steps, 1, kMax32,
                  "steps of the recommended run, for 'trimtab train'");
    options_.study_path = "trimtab-study.db";
    flags.Text("--study", options_.study_path, "SQLite file that keeps everything");
    flags.Text("--seed-study", seed_study_,
               "study of another problem on this machine: takes its prices and what it measured");
    flags.Switch("--resume", options_.study.resume, "go on with the study if it is there");
    flags.Text("--report", report_, "write report.json and REPORT.html to this folder");
  }

  int Run(const OutputOptions& output) override {
    Problem& problem = options_.problem;
    SetGlobalBatches();
    ChooseModel();
    // What can be refused is refused before the minute that measuring the machine may take.
    problem.optimizer_states = ResolveOptimizerStates(problem.optimizer_states);
    options_.race.objective = ParseObjective(objective_);
    options_.race.indifference = ParsePercent(indifference_, "--indifference");
    if (launcher_.name() == "kubernetes") {
      throw UsageError(
          "--launcher kubernetes: a search starts its visits itself, and nothing is sent to "
          "Kubernetes from here; expected another launcher (profile and train print a job for "
          "kubectl apply with --plan)");
    }
    options_.launcher = launcher_.Make();
    problem.narrowings = Narrowings();
    problem.requirements = ParseTrainingRequirements(require_);
    if (only_space_) return PrintSpace(output);
    if (!launcher_.plan()) RequireNewOrResumed(options_.study_path, options_.study.resume);
    if (!report_.empty()) PrepareReport(report_);
    SetCluster(seed_study_.empty() ? cluster_flags_.ResolveMeasuring(output) : SeededCluster());
    options_.study.program_version = kVersion;
    options_.visit.max_steps = std::max(options_.visit.max_steps, options_.visit.steps);

    CatchStopSignals();
    if (launcher_.plan()) return PrintPlan(output);
    SearchProgress events(output, problem.cluster.caveat);
    std::optional<SearchResult> found;
    try {
      found = RunSearch(options_, events);
    } catch (const WalkStopped&) {
      events.Clear();
      LogWarning("stopped before a layout that fits was found; --resume begins again with {}",
                 options_.study_path);
      return StopExitCode() != 0 ? StopExitCode() : static_cast<int>(ExitCode::kPartial);
    }
    const SearchResult& result = *found;
    events.Clear();
    if (!report_.empty()) {
      WriteReport(result, report_);
      LogInfo("wrote the report to {}", report_);
    }
    if (output.json) {
      PrintJson(ReportJson(result));
    } else {
      Print(SearchText(result, top_, UseColor(output, STDOUT_FILENO)));
    }
    if (!result.partial) return StopExitCode();
    LogWarning("partial result: {}; --resume goes on with {}", result.partial_reason,
               options_.study_path);
    return StopExitCode() != 0 ? StopExitCode() : static_cast<int>(ExitCode::kPartial);
  }

 private:
  /// The model that is named, or a proposed one with its batch, steps and learning rate where no
  /// flag says otherwise.
  void ChooseModel() {
    Problem& problem = options_.problem;
    if (!proposal_.given()) {
      for (const char* flag : {"--model", "--gbs", "--seq"}) {
        if (flags_->Given(flag)) continue;
        throw UsageError(fmt::format(
            "{} is missing; expected --model, --gbs and --seq, or --params or --days", flag));
      }
      problem.model = LoadModelConfig(model_);
      return;
    }
    if (!model_.empty()) {
      throw UsageError("--model contradicts --params or --days, which propose a model");
    }
    const ModelProposal proposal =
        proposal_.Propose(cluster_flags_.Resolve(), problem.tokens, problem.sequence_length);
    problem.model = proposal.model;
    problem.optimizer = proposal.optimizer;
    problem.tokens = proposal.tokens;
    problem.sequence_length = proposal.model.max_sequence_length;
    if (problem.global_batch == 0) problem.global_batch = proposal.global_batch;
    if (problem.steps == 0) problem.steps = proposal.steps;
    for (const std::string& line : ProposalLines(proposal)) LogInfo("{}", line);
  }

  /// What the best candidates' trials would be started with, by prediction alone.
  int PrintPlan(const OutputOptions& output) {
    const Cluster& cluster = options_.problem.cluster;
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
    SearchProgress events(output, options_.problem.cluster.caveat);
    const SearchResult ranked = RunSearch(unproved, events);
    events.Clear();
    if (options_.race.prove_count == 0) {
      LogWarning("--plan: --prove 0 measures nothing, so nothing would be sent");
    }
    nlohmann::json plans = nlohmann::json::array();
    for (const LaunchPlan& plan : PlanTrials(options_, ranked)) {
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

  /// As the seed study priced it, which also says how far off that was.
  Cluster SeededCluster() {
    SeedStudy seed = LoadSeedStudy(seed_study_);
    Cluster cluster = cluster_flags_.ResolvePricedBy(seed.profile, seed_study_);
    seed.RequireSameMachine(cluster);
    LogInfo("prices and {} measured steps are those of {}", seed.residuals.size(), seed_study_);
    options_.study.seed = std::move(seed.residuals);
    return cluster;
  }

  void SetGlobalBatches() {
    if (global_batches_.empty()) return;
    const std::vector<int64_t> batches = ParseGlobalBatches(global_batches_);
    options_.problem.global_batch = batches.front();
    if (batches.size() > 1) options_.problem.global_batches = batches;
  }

  void SetCluster(Cluster cluster) {
    Problem& problem = options_.problem;
    problem.cluster = std::move(cluster);
    if (!flags_->Given("--precision") && problem.cluster.device == "cuda") precisions_ = {"auto"};
    problem.precisions = ResolvePrecisions(precisions_, problem.cluster.profile);
    if (flags_->Given("--optimizer")) problem.optimizer.kind = ParseOptimizerKind(optimizer_);
    RequireMemoryOfGpu(problem.memory_per_rank_bytes, problem.cluster);
    if (flags_->Given("--gpus")) problem.gpus = ParseGpuCounts(gpus_, problem.cluster);
    RequireSensible(problem);
  }

  std::vector<Narrowing> Narrowings() const {
    std::vector<Narrowing> all = ParseNarrowings(fixed_, "--fix", /*forbidden=*/false);
    for (const Narrowing& each : all) {
      if (each.values.size() == 1) continue;
      throw UsageError(fmt::format("--fix {}: {} values; expected one, --allow takes several",
                                   each.key, each.values.size()));
    }
    const auto add = [&all](const std::vector<Narrowing>& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    add(ParseNarrowings(allowed_, "--allow", /*forbidden=*/false));
    add(ParseNarrowings(forbidden_, "--forbid", /*forbidden=*/true));
    return all;
  }

  int PrintSpace(const OutputOptions& output) {
    SetCluster(cluster_flags_.Resolve());
    const SpaceDescription space = DescribeSpace(options_.problem);
    if (output.json) {
      PrintJson(SpaceJson(space));
    } else {
      Print(SpaceText(space, UseColor(output, STDOUT_FILENO)));
    }
    return 0;
  }

  const FlagSet* flags_ = nullptr;
  SearchOptions options_;
  ClusterFlags cluster_flags_;
  std::string for_ = "training";
  std::string model_;
  ProposalFlags proposal_;
  std::vector<std::string> precisions_ = {"fp32"};
  std::string optimizer_;
  std::string gpus_;
  std::string require_;
  std::vector<std::string> global_batches_;
  std::string objective_ = "throughput";
  std::string indifference_ = "1%";
  LauncherFlag launcher_;
  std::string report_;
  std::string seed_study_;
  std::vector<std::string> fixed_;
  std::vector<std::string> allowed_;
  std::vector<std::string> forbidden_;
  bool only_space_ = false;
  int64_t top_ = 10;
};

}  // namespace

std::unique_ptr<Command> MakeSearchCommand() { return std::make_unique<SearchCommand>(); }

}  // namespace trimtab

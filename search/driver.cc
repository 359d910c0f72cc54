#include "search/driver.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/on_threads.h"
#include "engine/device/cuda/loader.h"
#include "search/proof.h"
#include "search/recipes.h"
#include "search/study/study_file.h"
#include "search/walk/relaxations.h"

namespace trimtab {
namespace {

/// What a study lists are the best by the objective that it began with.
void RequireSameObjective(const SearchOptions& options, const Study& study) {
  if (!study.enumerated()) return;
  const Objective began = study.goal().objective;
  if (began == options.race.objective) return;
  throw UsageError(fmt::format("--objective {}: {} lists the best by {}; expected that one",
                               Name(options.race.objective), options.study_path, Name(began)));
}

/// Of a walk over the space.
int ThreadsOf(const SearchOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// With the prices that the study began with: those of another profile would not compare.
SearchOptions PricedByStudy(SearchOptions options, const Study& study) {
  HardwareProfile& profile = options.problem.cluster.profile;
  const nlohmann::json began = study.profile();
  if (began == ToJson(profile)) return options;
  profile = HardwareProfileFromJson(began, study.path());
  LogInfo("{} goes on with the prices it began with, those of {}", study.path(), profile.name);
  return options;
}

/// Enumerates, unless an earlier search has.
void Enumerate(const SearchOptions& options, const Walkers& walkers, int64_t ingested, Study& study,
               Predictor& predictor, SearchEvents& events) {
  // What a stopped walk has left is looked at now, unless the race has begun.
  if (study.gap() > 0) study.ForgetSpace();
  if (study.enumerated()) {
    const std::vector<CandidateRecord> candidates = study.Candidates();
    const auto measured = std::count_if(candidates.begin(), candidates.end(),
                                        [](const auto& c) { return !c.visits.empty(); });
    events.OnResume(measured, ingested);
    return;
  }
  // The space last: with it a study counts as enumerated.
  study.StoreRecipes(ToJson(PlaceRecipes(options.problem, options.race.objective, predictor)));
  StoreSpace(options.problem, options.race.objective, predictor, walkers, study);
}

double SecondsSince(Proof::Clock::time_point start) {
  return std::chrono::duration<double>(Proof::Clock::now() - start).count();
}

/// How long the walk over the space may take: what visits and dry runs need of the budget stays.
/// Some seconds are enough for spaces of usual size.
double WalkSeconds(const SearchOptions& options) {
  constexpr double kLeast = 5;
  constexpr double kShareBesideVisits = 0.5;
  constexpr double kShareAlone = 0.8;
  if (options.budget_s <= 0) return std::numeric_limits<double>::infinity();
  const double share = options.race.prove_count > 0 ? kShareBesideVisits : kShareAlone;
  return std::max(kLeast, share * options.budget_s);
}

/// Enumerates, and throws InfeasibleError where nothing fits.
void FillSpace(const SearchOptions& options, Proof::Clock::time_point start, Study& study,
               Predictor& predictor, TrialRunner& runner, SearchEvents& events) {
  RequireSameObjective(options, study);
  study.SetGoal({.objective = options.race.objective,
                 .prove_count = options.race.prove_count,
                 .indifference = options.race.indifference,
                 .most_rounds = options.race.most_rounds});
  runner.EndLeftovers(study.uuid());
  if (!study.WorkersGone()) runner.GiveUpNodes(study.uuid());
  const int64_t ingested = study.Recover();
  Walkers walkers(ThreadsOf(options),
                  [&events] { return events.stop_requested() != StopRequest::kNone; });
  walkers.enough = [&] { return SecondsSince(start) >= WalkSeconds(options); };
  walkers.progress = [&events](const WalkProgress& progress) { events.OnWalk(progress); };
  Enumerate(options, walkers, ingested, study, predictor, events);
  const std::vector<CandidateRecord> candidates = study.Candidates();
  const SpaceSummary summary = Summarize(study.Pruned(), candidates, study.gap());
  events.OnSpace(summary);
  if (summary.feasible > 0) return;
  const auto relaxations = FindRelaxations(options.problem, predictor, walkers);
  ThrowInfeasible(summary, candidates, InWords(relaxations));
}

/// One after the other, so many at once as there are threads.
class DryRuns {
 public:
  DryRuns(const SearchOptions& options, Study& study, Predictor& predictor, SearchEvents& events)
      : study_(study), events_(events), speed_(options.problem), candidates_(study.Candidates()) {
    for (int i = 0; i < ThreadsOf(options) && predictor.OfThread(i) != nullptr; ++i) {
      predictors_.push_back(predictor.OfThread(i));
    }
  }

  const std::vector<CandidateRecord>& candidates() const { return candidates_; }
  int64_t done() const { return done_; }

  /// Of these candidates. False once a stop is requested.
  bool Of(const std::vector<size_t>& chosen) {
    const int64_t total = done_ + static_cast<int64_t>(chosen.size());
    for (size_t first = 0; first < chosen.size(); first += predictors_.size()) {
      if (events_.stop_requested() != StopRequest::kNone) return false;
      const size_t count = std::min(predictors_.size(), chosen.size() - first);
      const auto next = std::span(chosen).subspan(first, count);
      std::vector<Prediction> dry_runs(count);
      OnThreads(static_cast<int>(count), count,
                [&](size_t i) { dry_runs[i] = predictors_[i]->DryRun(candidates_[next[i]].run); });
      for (size_t i = 0; i < count; ++i) {
        Store(candidates_[next[i]], dry_runs[i]);
        events_.OnDryRun(++done_, total);
      }
    }
    return true;
  }

 private:
  void Store(CandidateRecord& candidate, const Prediction& dry_run) {
    const Breach breach = BreachOf(candidate.run, dry_run, speed_);
    study_.StoreDryRun(candidate.id, dry_run, breach.rule, breach.why);
    candidate.dry_run = dry_run;
    candidate.pruned_by = breach.rule;
    candidate.pruned_why = breach.why;
  }

  Study& study_;
  SearchEvents& events_;
  SpeedRequirements speed_;
  std::vector<Predictor*> predictors_;
  std::vector<CandidateRecord> candidates_;
  int64_t done_ = 0;
};

/// The best by closed form, then what would be chosen without a dry run, until nothing would.
void DryRunBest(const SearchOptions& options, Study& study, Predictor& predictor,
                SearchEvents& events) {
  if (options.dry_run_count == 0) return;
  const Objective objective = options.race.objective;
  DryRuns dry_runs(options, study, predictor, events);
  std::vector<size_t> chosen =
      ChooseDryRuns(objective, dry_runs.candidates(), options.dry_run_count);
  while (dry_runs.Of(chosen)) {
    chosen = ChooseMoreDryRuns(objective, dry_runs.candidates());
    if (chosen.empty()) break;
  }
  if (dry_runs.done() > 0) events.OnDryRunsEnd(dry_runs.done());
}

/// Throws EnvironmentError when this machine has not the GPUs of the cluster, or its trials would
/// be measured with messages between threads where training has NCCL's.
void RequireTrialsRunHere(const Cluster& cluster, const Launcher& launcher) {
  if (cluster.device == "cpu" || launcher.elsewhere()) return;
  const CudaAvailability& gpus = FindCudaDevices();
  std::string why;
  if (gpus.device_count == 0) {
    why = gpus.reason;
  } else if (gpus.device_count < cluster.max_ranks) {
    why = fmt::format("the cluster has {} GPUs, this machine {}", cluster.max_ranks,
                      gpus.device_count);
  } else if (cluster.max_ranks > 1 && !launcher.ranks_are_processes()) {
    why = "ranks on several GPUs are started by --launcher local";
  }
  if (why.empty()) return;
  throw EnvironmentError(
      fmt::format("{}: nothing can be measured here: {}; --prove 0 ranks by prediction alone",
                  cluster.name, why));
}

/// What workers may hold while they wait for their next visit. Each visit needs as much again as
/// one of them holds, and on a GPU what its libraries take.
int64_t MemoryForParkedWorkers(const Cluster& cluster) {
  if (cluster.device == "cpu") return cluster.memory_bytes / 2;
  const auto gpu = static_cast<int64_t>(cluster.profile.memory_bytes.value);
  return gpu * cluster.max_ranks / 4;
}

}  // namespace

std::vector<LaunchPlan> PlanTrials(const SearchOptions& options, const SearchResult& ranked) {
  std::vector<LaunchPlan> plans;
  for (const RankingRow& row : ranked.ranking) {
    if (static_cast<int64_t>(plans.size()) >= options.race.prove_count) break;
    TrialRequest request = options.RequestFor(ranked.candidates[row.candidate].run,
                                              fmt::format("study-{}", plans.size() + 1));
    request.study = "study";
    plans.push_back(
        options.launcher->Plan(WorkerLaunch({}, request, request.results_path + ".run.json")));
  }
  return plans;
}

SearchResult RunSearch(const SearchOptions& asked, Predictor& todays, TrialRunner& runner,
                       SearchEvents& events) {
  const auto start = Proof::Clock::now();
  const bool is_new = HoldsNoStudy(asked.study_path) || IsEmptyStudy(asked.study_path);
  std::unique_ptr<Study> study = Study::Open(asked.study_path, asked.problem, asked.study);
  const SearchOptions options = PricedByStudy(asked, *study);
  const std::unique_ptr<Predictor> own = todays.For(options.problem);
  Predictor& predictor = own != nullptr ? *own : todays;
  try {
    FillSpace(options, start, *study, predictor, runner, events);
  } catch (const Error&) {
    // There is nothing in it to go on with, and it would be in the way of the next command.
    const std::string results = study->results_path();
    study.reset();
    std::error_code ignored;
    if (is_new) std::filesystem::remove(asked.study_path, ignored);
    if (is_new && std::filesystem::is_empty(results, ignored)) {
      std::filesystem::remove(results, ignored);
    }
    throw;
  }
  DryRunBest(options, *study, predictor, events);
  const std::string stopped_by = Proof(options, start, *study, runner, events).Run();
  if (!stopped_by.empty()) study->NoteStop(stopped_by);
  return ResultFromStudy(*study);
}

SearchResult RunSearch(const SearchOptions& options, SearchEvents& events) {
  if (options.race.prove_count > 0) {
    RequireTrialsRunHere(options.problem.cluster, *options.launcher);
  }
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(options.problem);
  ProcessTrialRunner runner({.launcher = options.launcher,
                             .parked_bytes = MemoryForParkedWorkers(options.problem.cluster)});
  return RunSearch(options, *predictor, runner, events);
}

}  // namespace trimtab

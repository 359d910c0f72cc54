#include "search/driver.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/device/cuda/loader.h"
#include "search/proof.h"
#include "search/study/study_file.h"

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

/// Prices candidates as the study began to: those of another profile would not compare.
void PriceByStudy(const Study& study, Workload& workload) {
  const nlohmann::json began = study.profile();
  const bool same = began == ToJson(workload.cluster().profile);
  const HardwareProfile profile = HardwareProfileFromJson(began, study.path());
  workload.PriceBy(profile);
  if (same) return;
  LogInfo("{} goes on with the prices it began with, those of {}", study.path(), profile.name);
}

/// Enumerates, unless an earlier search has.
void Enumerate(const SearchOptions& options, const Walkers& walkers, int64_t ingested,
               Workload& workload, Study& study, SearchEvents& events) {
  // What a stopped walk has left is looked at now, unless the race has begun.
  if (study.gap() > 0) study.ForgetSpace();
  if (study.enumerated()) {
    const std::vector<CandidateRecord> candidates = study.Candidates();
    const auto measured = std::count_if(candidates.begin(), candidates.end(),
                                        [](const auto& c) { return !c.visits.empty(); });
    events.OnResume(measured, ingested);
    return;
  }
  workload.Calibrate(study);
  workload.StoreSpace(options.race.objective, walkers, study);
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
void FillSpace(const SearchOptions& options, Proof::Clock::time_point start, Workload& workload,
               Study& study, TrialRunner& runner, SearchEvents& events) {
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
  Enumerate(options, walkers, ingested, workload, study, events);
  const std::vector<CandidateRecord> candidates = study.Candidates();
  const SpaceSummary summary = Summarize(study.Pruned(), candidates, study.gap());
  events.OnSpace(summary);
  if (summary.feasible > 0) return;
  ThrowInfeasible(summary, candidates, workload.Relaxations(walkers));
}

/// Throws EnvironmentError when this machine has not the GPUs of the cluster, or its trials would
/// be measured with messages between threads where training has NCCL's.
void RequireTrialsRunHere(const Cluster& cluster, const Launcher& launcher) {
  if (cluster.device == DeviceKind::kCpu || launcher.elsewhere()) return;
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
  if (cluster.device == DeviceKind::kCpu) return cluster.memory_bytes / 2;
  const auto gpu = static_cast<int64_t>(cluster.profile.memory_bytes.value);
  return gpu * cluster.max_ranks / 4;
}

}  // namespace

std::vector<LaunchPlan> PlanTrials(const Workload& workload, const SearchOptions& options,
                                   const SearchResult& ranked) {
  std::vector<LaunchPlan> plans;
  for (const RankingRow& row : ranked.ranking) {
    if (static_cast<int64_t>(plans.size()) >= options.race.prove_count) break;
    TrialRequest request =
        options.RequestFor(workload.JobOf(ranked.candidates[row.candidate], options.visit),
                           workload.cluster(), fmt::format("study-{}", plans.size() + 1));
    request.study = "study";
    plans.push_back(
        options.launcher->Plan(WorkerLaunch({}, request, request.results_path + ".run.json")));
  }
  return plans;
}

SearchResult RunSearch(Workload& workload, const SearchOptions& options, TrialRunner& runner,
                       SearchEvents& events) {
  const auto start = Proof::Clock::now();
  const bool is_new = HoldsNoStudy(options.study_path) || IsEmptyStudy(options.study_path);
  std::unique_ptr<Study> study =
      Study::Open(options.study_path, workload.Identity(), options.study);
  PriceByStudy(*study, workload);
  try {
    FillSpace(options, start, workload, *study, runner, events);
  } catch (const Error&) {
    // There is nothing in it to go on with, and it would be in the way of the next command.
    const std::string results = study->results_path();
    study.reset();
    std::error_code ignored;
    if (is_new) std::filesystem::remove(options.study_path, ignored);
    if (is_new && std::filesystem::is_empty(results, ignored)) {
      std::filesystem::remove(results, ignored);
    }
    throw;
  }
  workload.LookCloser({.objective = options.race.objective,
                       .count = options.dry_run_count,
                       .threads = ThreadsOf(options)},
                      *study, events);
  const std::string stopped_by = Proof(workload, options, start, *study, runner, events).Run();
  if (!stopped_by.empty()) study->NoteStop(stopped_by);
  return ResultFromStudy(*study);
}

SearchResult RunSearch(Workload& workload, const SearchOptions& options, SearchEvents& events) {
  if (options.race.prove_count > 0) RequireTrialsRunHere(workload.cluster(), *options.launcher);
  ProcessTrialRunner runner(
      {.launcher = options.launcher, .parked_bytes = MemoryForParkedWorkers(workload.cluster())});
  return RunSearch(workload, options, runner, events);
}

}  // namespace trimtab

#include "search/driver.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/device/cuda/loader.h"
#include "profiler/other_work.h"
#include "profiler/quiet_wait.h"
#include "search/best_layouts.h"
#include "search/retry.h"
#include "search/space_tree.h"

namespace trimtab {
namespace {

constexpr char kMemory[] = "memory";
/// Feasible, and not on the shortlist.
constexpr char kUnlisted[] = "unlisted";
/// Never looked at: cannot fit, and cannot be on the shortlist.
constexpr char kMemoryBound[] = "memory-bound";
constexpr char kBound[] = "bound";

/// Why a rank with this prediction does not fit; empty when it does.
std::string MemoryBreach(const RunConfig& run, const Prediction& prediction) {
  const int64_t limit = run.memory_per_rank_bytes;
  if (limit == 0 || prediction.peak_mem_bytes <= limit) return "";
  return fmt::format("needs {} per rank, {} allowed", FormatBytes(prediction.peak_mem_bytes),
                     FormatBytes(limit));
}

CandidateRecord Candidate(const RunConfig& run, const Prediction& prediction) {
  CandidateRecord candidate;
  candidate.key = CandidateKey(run);
  candidate.run = run;
  candidate.closed_form = prediction;
  candidate.pruned_why = MemoryBreach(run, prediction);
  if (!candidate.pruned_why.empty()) candidate.pruned_by = kMemory;
  return candidate;
}

/// `left_out`: those that are not among `candidates`.
SpaceSummary Summarize(const PrunedCounts& left_out,
                       const std::vector<CandidateRecord>& candidates) {
  SpaceSummary summary;
  std::map<std::string, int64_t> counts(left_out.begin(), left_out.end());
  const auto take = [&counts](const std::string& why) {
    const auto found = counts.extract(why);
    return found.empty() ? 0 : found.mapped();
  };
  summary.cut_by_bound = take(kBound);
  summary.cut_by_memory = take(kMemoryBound);
  summary.feasible = take(kUnlisted);
  int64_t too_large = take(kMemory);
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.pruned_by.empty()) {
      ++summary.feasible;
    } else if (candidate.pruned_by == kMemory) {
      ++too_large;
    } else {
      ++counts[candidate.pruned_by];
    }
  }
  summary.visited = summary.feasible + too_large;
  for (const auto& [rule, count] : counts) summary.cut_by_rule += count;
  summary.size =
      summary.visited + summary.cut_by_rule + summary.cut_by_memory + summary.cut_by_bound;
  for (const Rule& rule : LegalityRules()) {
    if (const int64_t count = take(rule.id)) summary.pruned.emplace_back(rule.id, count);
  }
  // What is left was pruned by rules of an older version of the program.
  for (const auto& [rule, count] : counts) summary.pruned.emplace_back(rule, count);
  const int64_t memory = too_large + summary.cut_by_memory;
  if (memory > 0) summary.pruned.emplace_back(kMemory, memory);
  return summary;
}

[[noreturn]] void ThrowInfeasible(const SpaceSummary& summary,
                                  const std::vector<CandidateRecord>& candidates) {
  std::string reasons;
  for (const auto& [rule, count] : summary.pruned) {
    reasons += fmt::format("{}{} by {}", reasons.empty() ? "" : ", ", count, rule);
  }
  const CandidateRecord* leanest = nullptr;
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.pruned_by != kMemory) continue;
    if (leanest == nullptr ||
        candidate.prediction()->peak_mem_bytes < leanest->prediction()->peak_mem_bytes) {
      leanest = &candidate;
    }
  }
  if (leanest != nullptr) {
    reasons += fmt::format("; the leanest, {}, {}", leanest->key, leanest->pruned_why);
  }
  throw InfeasibleError(fmt::format("no feasible configuration: all {} candidates were pruned: {}",
                                    summary.size, reasons));
}

/// Narrowings left nothing: says which asks for what the space has not.
[[noreturn]] void ThrowEmpty(Problem problem) {
  const std::vector<Narrowing> narrowings = std::exchange(problem.narrowings, {});
  const std::vector<std::vector<std::string>> values = SpaceTree(problem).ValuesByRow();
  for (const Narrowing& each : narrowings) {
    const std::vector<std::string>& valid = values[RowThatBinds(each.key)];
    const bool listed = std::any_of(each.values.begin(), each.values.end(), [&](const auto& value) {
      return std::find(valid.begin(), valid.end(), value) != valid.end();
    });
    if (each.forbidden || listed || each.key != SpaceRows()[RowThatBinds(each.key)].name) continue;
    throw UsageError(fmt::format("no candidate has {}={}; its values here: {}", each.key,
                                 fmt::join(each.values, ","), fmt::join(valid, ", ")));
  }
  throw UsageError("what --fix, --allow and --forbid leave of the space holds no candidate");
}

[[noreturn]] void ThrowNothingRan(const std::vector<RankingRow>& ranking,
                                  const std::vector<CandidateRecord>& candidates) {
  const auto failed = [](const RankingRow& row) {
    return row.state != "measured" && row.state != "predicted";
  };
  const auto first = std::find_if(ranking.begin(), ranking.end(), failed);
  TRIMTAB_ASSERT(first != ranking.end(), "nothing ran, yet nothing failed");
  throw InfeasibleError(fmt::format("none of the {} candidates tried ran; the first, {}: {}: {}",
                                    std::count_if(ranking.begin(), ranking.end(), failed),
                                    first->layout, first->state,
                                    candidates[first->candidate].last_message));
}

std::map<Mode, ProbeReference> ReferencesOf(const Study& study) {
  return ProbeReferences(HardwareProfileFromJson(study.profile(), study.path()));
}

RaceRules RulesOf(const SearchGoal& goal) {
  return {.objective = ParseObjective(goal.objective),
          .prove_count = goal.prove_count,
          .indifference = goal.indifference,
          .most_rounds = goal.most_rounds};
}

/// Why the race of `result` did not end; empty when it did.
std::string WhyOpen(const SearchResult& result, const RaceStep& step) {
  const int64_t racing = static_cast<int64_t>(result.race.With(Standing::kRacing).size());
  const std::string open =
      racing > 0 ? fmt::format("{} candidates are not told apart from the best yet", racing)
                 : "the best was visited only once, or some that may be better not at all";
  if (step.end == RaceEnd::kRounds) {
    return fmt::format("{} rounds were not enough: {}", result.rules.most_rounds, open);
  }
  const bool over = !step.visit && step.begin_round.empty();
  return over ? "" : open;
}

class Search {
 public:
  Search(const SearchOptions& options, Predictor& predictor, TrialRunner& runner,
         SearchEvents& events)
      : options_(options),
        predictor_(predictor),
        runner_(runner),
        events_(events),
        study_(Study::Open(options.study_path, options.problem, options.study)),
        references_(ReferencesOf(*study_)) {}

  SearchResult Run() {
    RequireSameObjective();
    study_->SetGoal({.objective = Name(options_.race.objective),
                     .prove_count = options_.race.prove_count,
                     .indifference = options_.race.indifference,
                     .most_rounds = options_.race.most_rounds});
    runner_.EndLeftovers(study_->uuid());
    const int64_t ingested = study_->Recover();
    const bool resumed = study_->enumerated();
    if (!resumed) StoreSpace();
    candidates_ = study_->Candidates();
    if (resumed) {
      const auto measured = std::count_if(candidates_.begin(), candidates_.end(),
                                          [](const auto& c) { return c.measured.has_value(); });
      events_.OnResume(measured, ingested);
    }
    const SpaceSummary summary = Summarize(study_->Pruned(), candidates_);
    events_.OnSpace(summary);
    if (summary.feasible == 0) ThrowInfeasible(summary, candidates_);
    DryRunBest();
    const double race_began_s = elapsed_s();
    std::string stopped_by = RunRace();
    if (trials_s_ > 0) events_.OnRaceEnd(trials_s_, elapsed_s() - race_began_s - trials_s_);
    SearchResult result = ResultFromStudy(*study_);
    if (result.partial && !stopped_by.empty()) result.partial_reason = std::move(stopped_by);
    return result;
  }

 private:
  /// What a study lists are the best by the objective that it began with.
  void RequireSameObjective() const {
    if (!study_->enumerated()) return;
    const std::string began = study_->goal().objective;
    if (began == Name(options_.race.objective)) return;
    throw UsageError(fmt::format("--objective {}: {} lists the best by {}; expected that one",
                                 Name(options_.race.objective), options_.study_path, began));
  }

  /// Stores what the search may look at closely, and counts the rest. Where nothing fits, the
  /// leanest is kept, to say how much is missing.
  void StoreSpace() {
    const int threads = options_.threads > 0
                            ? options_.threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const BestLayouts best =
        FindBestLayouts(options_.problem, Shortlist(options_.race.objective), predictor_, threads);
    const WalkCounts& counts = best.counts;
    if (counts.size == 0) ThrowEmpty(options_.problem);
    std::vector<CandidateRecord> kept;
    for (const auto& listed : best.list) kept.push_back(Candidate(listed->run, listed->prediction));
    int64_t too_large = counts.visited - counts.fitting;
    int64_t cut_by_memory = counts.cut_by_memory;
    if (kept.empty() && too_large + cut_by_memory > 0) {
      const std::optional<Shortlisted> leanest = FindLeanest(options_.problem, predictor_, threads);
      TRIMTAB_ASSERT(leanest.has_value(), "{} candidates do not fit, and none is there",
                     too_large + cut_by_memory);
      kept.push_back(Candidate(leanest->run, leanest->prediction));
      --(cut_by_memory > 0 ? cut_by_memory : too_large);
    }
    PrunedCounts left_out = counts.cut_by_rule;
    const auto leave_out = [&left_out](const char* why, int64_t count) {
      if (count > 0) left_out.emplace_back(why, count);
    };
    leave_out(kUnlisted, counts.fitting - static_cast<int64_t>(best.list.size()));
    leave_out(kBound, counts.cut_by_bound);
    leave_out(kMemoryBound, cut_by_memory);
    leave_out(kMemory, too_large);
    study_->StoreCandidates(kept, left_out);
  }

  void DryRunBest() {
    const std::vector<size_t> chosen =
        ChooseDryRuns(options_.race.objective, candidates_, options_.dry_run_count);
    int64_t done = 0;
    for (const size_t index : chosen) {
      if (events_.stop_requested() != StopRequest::kNone) return;
      CandidateRecord& candidate = candidates_[index];
      candidate.dry_run = predictor_.DryRun(candidate.run);
      candidate.pruned_why = MemoryBreach(candidate.run, *candidate.dry_run);
      if (!candidate.pruned_why.empty()) candidate.pruned_by = kMemory;
      study_->StoreDryRun(candidate.id, *candidate.dry_run, candidate.pruned_by,
                          candidate.pruned_why);
      events_.OnDryRun(++done, static_cast<int64_t>(chosen.size()));
    }
  }

  /// Takes the steps of the race until it ends. Returns why it stopped before that; empty when it
  /// did not.
  std::string RunRace() {
    if (options_.race.prove_count == 0) return "";
    Judge();
    while (true) {
      const RaceStep step = NextStep(options_.race, race_, candidates_, study_->Rounds());
      FinishRounds(step.visit.has_value());
      if (!step.visit && step.begin_round.empty()) return "";
      if (events_.stop_requested() != StopRequest::kNone) return "stopped on request";
      if (options_.budget_s > 0 && elapsed_s() >= options_.budget_s) {
        return fmt::format("the budget of {} was used up", FormatSeconds(options_.budget_s));
      }
      if (step.visit) {
        Visit(*step.visit, study_->Rounds().back().id);
      } else {
        BeginRound(step.begin_round);
      }
    }
  }

  void Judge() {
    candidates_ = study_->Candidates();
    PruneHopeless();
    race_ = JudgeRace(options_.race, candidates_, references_);
    ApplyRace(race_, candidates_);
  }

  /// A trial that ran out of memory says the same of every candidate that needs as much.
  void PruneHopeless() {
    std::vector<std::pair<int64_t, std::string>> pruned;
    for (const auto& [index, why] : FindHopeless(candidates_)) {
      candidates_[index].pruned_by = kMemory;
      candidates_[index].pruned_why = why;
      pruned.emplace_back(candidates_[index].id, why);
    }
    if (!pruned.empty()) study_->PruneForMemory(pruned);
  }

  void BeginRound(const std::vector<size_t>& order) {
    std::vector<int64_t> ids;
    for (const size_t index : order) ids.push_back(candidates_[index].id);
    // Those that are left out for good need no worker any more.
    const auto began = std::chrono::steady_clock::now();
    for (const size_t index : race_.With(Standing::kBehind)) {
      runner_.Release(candidates_[index].key);
    }
    NoteTrials(began);
    study_->BeginRound(ids);
  }

  /// Notes the speed of rounds that are over, unless the last is `open`.
  void FinishRounds(bool open) {
    if (!race_.fit) return;
    for (const RoundRecord& round : study_->Rounds()) {
      const auto speed = race_.fit->speed_of_round().find(round.id);
      if (round.speed || speed == race_.fit->speed_of_round().end()) continue;
      if (open && round.id == study_->Rounds().back().id) continue;
      study_->FinishRound(round.id, speed->second);
      events_.OnRoundEnd(study_->Rounds().at(static_cast<size_t>(round.id - 1)), Progress());
    }
  }

  void Visit(size_t index, int64_t round) {
    const CandidateRecord& candidate = candidates_[index];
    const Attempt attempt = study_->BeginAttempt(candidate.id, round);
    events_.OnVisitStart(candidate, Progress());
    TrialRequest request = options_.RequestFor(candidate.run, attempt.token);
    request.study = study_->uuid();
    request.time_limit_s *= TimeLimitFactor(candidate);
    request.memory_bytes =
        candidate.prediction()->peak_mem_bytes * candidate.run.layout.world_size();
    const auto asked = std::chrono::steady_clock::now();
    if (disturbed_) {
      quiet_wait_.Wait([this] { return events_.stop_requested() != StopRequest::kNone; });
    }
    const TrialOutcome outcome =
        runner_.Run(request, [this] { return events_.stop_requested() == StopRequest::kCancel; });
    NoteTrials(asked);
    study_->IngestResults();
    study_->FinishAttempt(attempt, outcome);
    Judge();
    disturbed_ = outcome.state == TrialState::kDone && EndedDisturbed(candidates_[index]);
    events_.OnVisitEnd(candidates_[index], outcome, Progress());
  }

  /// Trials, or their ends, were waited for since then.
  void NoteTrials(std::chrono::steady_clock::time_point since) {
    trials_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  }

  RaceProgress Progress() const {
    RaceProgress progress;
    progress.elapsed_s = elapsed_s();
    const std::vector<RoundRecord> rounds = study_->Rounds();
    if (!rounds.empty()) progress.round = rounds.back().id;
    for (const CandidateRecord& candidate : candidates_) {
      progress.visits += static_cast<int64_t>(candidate.visits.size());
    }
    progress.failed = static_cast<int64_t>(race_.With(Standing::kFailed).size());
    if (!race_.best) return progress;
    progress.racing = 1 + static_cast<int64_t>(race_.With(Standing::kRacing).size());
    progress.speed = race_.fit->speed_of_round().rbegin()->second.median;
    progress.best_tokens_per_s = candidates_[*race_.best].measured->tokens_per_s;
    progress.best_layout = candidates_[*race_.best].key;
    return progress;
  }

  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  static bool EndedDisturbed(const CandidateRecord& candidate) {
    const std::vector<StepBlock>& blocks = candidate.visits.back().measurement.blocks;
    return !blocks.empty() && blocks.back().taken > kDisturbedShare;
  }

  const SearchOptions& options_;
  Predictor& predictor_;
  TrialRunner& runner_;
  SearchEvents& events_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Study> study_;
  const std::map<Mode, ProbeReference> references_;
  double trials_s_ = 0;     // spent waiting for trials
  bool disturbed_ = false;  // other programs were running when the last visit ended
  QuietWait quiet_wait_ = QuietWait::OnThisMachine(CoresOfThisMachine());
  std::vector<CandidateRecord> candidates_;
  Race race_;
};

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

SearchResult ResultFromStudy(const Study& study) {
  SearchResult result;
  const nlohmann::json profile = study.profile();
  result.study_path = study.path();
  result.problem = study.problem().dump();
  result.profile_name = profile.value("name", "");
  result.profile_measured_on = profile.value("measured_on", "");
  result.versions = study.Versions();
  result.rules = RulesOf(study.goal());
  const Objective objective = result.rules.objective;
  result.candidates = study.Candidates();
  result.rounds = study.Rounds();
  result.space = Summarize(study.Pruned(), result.candidates);
  if (result.space.feasible == 0) ThrowInfeasible(result.space, result.candidates);

  result.race = JudgeRace(result.rules, result.candidates, ReferencesOf(study));
  ApplyRace(result.race, result.candidates);
  if (result.rules.prove_count > 0) {
    const RaceStep step = NextStep(result.rules, result.race, result.candidates, result.rounds);
    result.race.end = step.end;
    result.partial_reason = WhyOpen(result, step);
    result.partial = !result.partial_reason.empty();
  }
  result.ranking = RankAll(result.rules, result.race, result.candidates);
  const std::optional<Recommendation> choice =
      Recommend(objective, result.candidates, result.ranking);
  const bool failed = !result.race.With(Standing::kFailed).empty();
  if (!choice || (!choice->measured && failed && !result.partial)) {
    ThrowNothingRan(result.ranking, result.candidates);
  }
  result.recommendation = *choice;
  result.numerics = SummarizeNumerics(objective, result.candidates, result.ranking);
  result.accuracy = SummarizeAccuracy(result.ranking);
  return result;
}

MeasureOptions SearchOptions::QuickVisit() {
  MeasureOptions visit;
  visit.warmup = 1;
  visit.steps = 2;
  visit.min_seconds = 1;
  visit.breakdown_visit = 2;  // of those that stay in the race
  visit.stable_mad = 1;       // always so: the race decides what is enough
  return visit;
}

TrialRequest SearchOptions::RequestFor(const RunConfig& run, const std::string& token) const {
  TrialRequest request;
  request.run = run;
  request.key = CandidateKey(run);
  request.attempt = token;
  request.results_path = study_path + ".results.jsonl";
  request.log_path = study_path + ".log";
  request.ranks_per_node = problem.cluster.ranks_per_node;
  request.time_limit_s = trial_time_limit_s;
  request.measure = visit;
  return request;
}

std::vector<LaunchPlan> PlanTrials(const SearchOptions& options, const SearchResult& ranked) {
  std::vector<LaunchPlan> plans;
  for (const RankingRow& row : ranked.ranking) {
    if (static_cast<int64_t>(plans.size()) >= options.race.prove_count) break;
    TrialRequest request = options.RequestFor(ranked.candidates[row.candidate].run,
                                              fmt::format("STUDY-{}", plans.size() + 1));
    request.study = "STUDY";
    plans.push_back(
        options.launcher->Plan(WorkerLaunch({}, request, request.results_path + ".run.json")));
  }
  return plans;
}

SearchResult RunSearch(const SearchOptions& options, Predictor& predictor, TrialRunner& runner,
                       SearchEvents& events) {
  return Search(options, predictor, runner, events).Run();
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

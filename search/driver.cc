#include "search/driver.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/device/cuda/loader.h"
#include "search/correct.h"

namespace trimtab {
namespace {

constexpr char kMemory[] = "memory";

/// Why a rank with this prediction does not fit; empty when it does.
std::string MemoryBreach(const RunConfig& run, const Prediction& prediction) {
  const int64_t limit = run.memory_per_rank_bytes;
  if (limit == 0 || prediction.peak_mem_bytes <= limit) return "";
  return fmt::format("needs {} per rank, {} allowed", FormatBytes(prediction.peak_mem_bytes),
                     FormatBytes(limit));
}

CandidateRecord Screen(const RunConfig& run, Predictor& predictor) {
  CandidateRecord candidate;
  candidate.key = CandidateKey(run);
  candidate.run = run;
  if (const Rule* rule = FirstBrokenRule(run)) {
    candidate.pruned_by = rule->id;
    candidate.pruned_why = rule->message(run);
    return candidate;
  }
  candidate.closed_form = predictor.ClosedForm(run);
  candidate.pruned_why = MemoryBreach(run, *candidate.closed_form);
  if (!candidate.pruned_why.empty()) candidate.pruned_by = kMemory;
  return candidate;
}

SpaceSummary Summarize(const std::vector<CandidateRecord>& candidates) {
  std::map<std::string, int64_t> counts;
  SpaceSummary summary;
  summary.enumerated = static_cast<int64_t>(candidates.size());
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.pruned_by.empty()) {
      ++summary.feasible;
    } else {
      ++counts[candidate.pruned_by];
    }
  }
  for (const Rule& rule : LegalityRules()) {
    if (const auto row = counts.extract(rule.id))
      summary.pruned.emplace_back(row.key(), row.mapped());
  }
  const int64_t memory = counts.contains(kMemory) ? counts.extract(kMemory).mapped() : 0;
  // What is left was pruned by rules of an older version of the program.
  for (const auto& [rule, count] : counts) summary.pruned.emplace_back(rule, count);
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
                                    summary.enumerated, reasons));
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

class Search {
 public:
  Search(const SearchOptions& options, Predictor& predictor, TrialRunner& runner,
         SearchEvents& events)
      : options_(options),
        predictor_(predictor),
        runner_(runner),
        events_(events),
        study_(Study::Open(options.study_path, options.problem, options.study)) {}

  SearchResult Run() {
    study_->SetGoal({.objective = Name(options_.objective), .prove_count = options_.prove_count});
    const int64_t ingested = study_->Recover();
    const bool resumed = study_->enumerated();
    if (!resumed) StoreSpace();
    candidates_ = study_->Candidates();
    if (resumed) {
      const auto measured = std::count_if(candidates_.begin(), candidates_.end(),
                                          [](const auto& c) { return c.measured.has_value(); });
      events_.OnResume(measured, ingested);
    }
    const SpaceSummary summary = Summarize(candidates_);
    events_.OnSpace(summary);
    if (summary.feasible == 0) ThrowInfeasible(summary, candidates_);
    DryRunBest();
    std::string stopped_by = Prove();
    SearchResult result = ResultFromStudy(*study_);
    if (result.partial && !stopped_by.empty()) result.partial_reason = std::move(stopped_by);
    return result;
  }

 private:
  void StoreSpace() {
    std::vector<CandidateRecord> screened;
    for (const RunConfig& run : EnumerateCandidates(options_.problem)) {
      screened.push_back(Screen(run, predictor_));
    }
    study_->StoreCandidates(screened);
  }

  void DryRunBest() {
    const std::vector<size_t> chosen =
        ChooseDryRuns(options_.objective, candidates_, options_.dry_run_count);
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

  /// Runs trials until all planned ones are settled. Returns why it stopped before that; empty when
  /// it did not.
  std::string Prove() {
    while (true) {
      plan_ = PlanProof(options_.objective, candidates_, options_.prove_count);
      if (!plan_.next) return "";
      if (events_.stop_requested() != StopRequest::kNone) return "stopped on request";
      if (options_.budget_s > 0 && elapsed_s() >= options_.budget_s) {
        return fmt::format("the budget of {} was used up", FormatSeconds(options_.budget_s));
      }
      RunTrial(*plan_.next);
    }
  }

  void RunTrial(size_t index) {
    const Attempt attempt = study_->BeginAttempt(candidates_[index].id);
    events_.OnTrialStart(candidates_[index], Progress(/*running=*/1));
    TrialRequest request;
    request.run = candidates_[index].run;
    request.attempt = attempt.token;
    request.results_path = study_->results_path();
    request.log_path = study_->log_path();
    request.time_limit_s = options_.trial_time_limit_s;
    request.measure = options_.measure;
    const TrialOutcome outcome =
        runner_.Run(request, [this] { return events_.stop_requested() == StopRequest::kCancel; });
    study_->IngestResults();
    study_->FinishAttempt(attempt, outcome);

    ++trials_;
    trial_seconds_ += outcome.seconds;
    candidates_ = study_->Candidates();
    plan_ = PlanProof(options_.objective, candidates_, options_.prove_count);
    events_.OnTrialEnd(candidates_[index], outcome, Progress(/*running=*/0));
  }

  TrialProgress Progress(int64_t running) const {
    TrialProgress progress;
    progress.done = plan_.measured;
    progress.failed = plan_.failed;
    progress.running = running;
    progress.total = static_cast<int64_t>(plan_.candidates.size());
    progress.elapsed_s = elapsed_s();
    if (trials_ > 0) {
      progress.eta_s =
          trial_seconds_ / static_cast<double>(trials_) * static_cast<double>(plan_.remaining());
    }
    const std::vector<size_t> best = RankByMeasurement(options_.objective, candidates_);
    if (!best.empty()) {
      progress.best_tokens_per_s = candidates_[best.front()].measured->tokens_per_s;
      progress.best_layout = candidates_[best.front()].key;
    }
    return progress;
  }

  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const SearchOptions& options_;
  Predictor& predictor_;
  TrialRunner& runner_;
  SearchEvents& events_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Study> study_;
  std::vector<CandidateRecord> candidates_;
  ProofPlan plan_;
  int64_t trials_ = 0;  // of this process
  double trial_seconds_ = 0;
};

/// Throws EnvironmentError when this machine has not the GPUs of the cluster, or its trials would
/// be measured with messages between threads where training has NCCL's.
void RequireTrialsRunHere(const Cluster& cluster, Launcher launcher) {
  if (cluster.device == "cpu") return;
  const CudaAvailability& gpus = FindCudaDevices();
  std::string why;
  if (gpus.device_count == 0) {
    why = gpus.reason;
  } else if (gpus.device_count < cluster.max_ranks) {
    why = fmt::format("the cluster has {} GPUs, this machine {}", cluster.max_ranks,
                      gpus.device_count);
  } else if (cluster.max_ranks > 1 && launcher != Launcher::kMpirun) {
    why = "ranks on several GPUs are started by --launcher mpirun";
  }
  if (why.empty()) return;
  throw EnvironmentError(
      fmt::format("{}: nothing can be measured here: {}; --prove 0 ranks by prediction alone",
                  cluster.name, why));
}

}  // namespace

SearchResult ResultFromStudy(const Study& study) {
  SearchResult result;
  const SearchGoal goal = study.goal();
  const nlohmann::json profile = study.profile();
  result.study_path = study.path();
  result.problem = study.problem().dump();
  result.profile_name = profile.value("name", "");
  result.profile_measured_on = profile.value("measured_on", "");
  result.versions = study.Versions();
  result.objective = ParseObjective(goal.objective);
  result.candidates = study.Candidates();
  result.space = Summarize(result.candidates);
  if (result.space.feasible == 0) ThrowInfeasible(result.space, result.candidates);

  const ProofPlan plan = PlanProof(result.objective, result.candidates, goal.prove_count);
  result.to_prove = static_cast<int64_t>(plan.candidates.size());
  result.partial = plan.remaining() > 0;
  if (result.partial) {
    result.partial_reason =
        fmt::format("{} of {} trials are not done", plan.remaining(), result.to_prove);
  }
  CorrectPredictions(result.candidates);
  result.ranking = RankAll(result.objective, result.candidates);
  const std::optional<Recommendation> choice =
      Recommend(result.objective, result.candidates, result.ranking);
  if (!choice || (!choice->measured && plan.failed > 0 && !result.partial)) {
    ThrowNothingRan(result.ranking, result.candidates);
  }
  result.recommendation = *choice;
  result.numerics = SummarizeNumerics(result.objective, result.candidates, result.ranking);
  result.accuracy = SummarizeAccuracy(result.ranking);
  return result;
}

SearchResult RunSearch(const SearchOptions& options, Predictor& predictor, TrialRunner& runner,
                       SearchEvents& events) {
  return Search(options, predictor, runner, events).Run();
}

SearchResult RunSearch(const SearchOptions& options, SearchEvents& events) {
  if (options.prove_count > 0) RequireTrialsRunHere(options.problem.cluster, options.launcher);
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(options.problem);
  ProcessTrialRunner runner("/proc/self/exe", {"profile"}, options.launcher);
  return RunSearch(options, *predictor, runner, events);
}

}  // namespace trimtab

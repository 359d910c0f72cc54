#include "search/training_workload.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "engine/base/on_threads.h"
#include "search/enumeration.h"
#include "search/recipes.h"
#include "search/walk/relaxations.h"

namespace trimtab {
namespace {

/// Runs dry runs in batches, one per thread.
class DryRuns {
 public:
  DryRuns(const Problem& problem, int threads, Study& study, Predictor& predictor,
          SearchEvents& events)
      : study_(study), events_(events), speed_(problem), candidates_(study.Candidates()) {
    for (int i = 0; i < threads && predictor.OfThread(i) != nullptr; ++i) {
      predictors_.push_back(predictor.OfThread(i));
    }
  }

  const std::vector<CandidateRecord>& candidates() const { return candidates_; }
  int64_t done() const { return done_; }

  /// Makes a dry run of each chosen candidate. Returns false once a stop is requested.
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

}  // namespace

TrainingWorkload::TrainingWorkload(Problem problem, Predictor& predictor)
    : problem_(std::move(problem)), asked_(&predictor) {}

TrainingWorkload::TrainingWorkload(Problem problem)
    : problem_(std::move(problem)), own_(MakeCostModelPredictor(problem_)) {}

void TrainingWorkload::PriceBy(const HardwareProfile& profile) {
  problem_.cluster.profile = profile;
  if (std::unique_ptr<Predictor> other = predictor().For(problem_)) own_ = std::move(other);
}

void TrainingWorkload::StoreSpace(Objective objective, const Walkers& walkers, Study& study) {
  // The space last: with it a study counts as enumerated.
  study.StoreRecipes(ToJson(PlaceRecipes(problem_, objective, predictor())));
  trimtab::StoreSpace(problem_, objective, predictor(), walkers, study);
}

std::string TrainingWorkload::Relaxations(const Walkers& walkers) {
  return InWords(FindRelaxations(problem_, predictor(), walkers));
}

void TrainingWorkload::LookCloser(const CloserLook& look, Study& study, SearchEvents& events) {
  if (look.count == 0) return;
  DryRuns dry_runs(problem_, look.threads, study, predictor(), events);
  std::vector<size_t> chosen = ChooseDryRuns(look.objective, dry_runs.candidates(), look.count);
  while (dry_runs.Of(chosen)) {
    chosen = ChooseMoreDryRuns(look.objective, dry_runs.candidates());
    if (chosen.empty()) break;
  }
  if (dry_runs.done() > 0) events.OnDryRunsEnd(dry_runs.done());
}

TrialJob TrainingWorkload::JobOf(const CandidateRecord& candidate,
                                 const MeasureOptions& visit) const {
  return TrainingJob(candidate.run, visit, candidate.key);
}

}  // namespace trimtab

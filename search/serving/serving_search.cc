#include "search/serving/serving_search.h"

#include <algorithm>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/on_threads.h"
#include "engine/base/units.h"
#include "search/serving/serving_prospects.h"

namespace trimtab {
namespace {

constexpr size_t kRound = 8;  // candidates simulated before the bounds are asked again
/// A candidate that is simulated, with what shows on the way that it is not worth it.
struct Trial {
  ServingEvaluation evaluation{};
  const PreparedBranch* branch = nullptr;
  BestCaseOf of{};
  LoadReport bound{};
  bool ended = false;
};

class Search {
 public:
  Search(const ServingProblem& problem, const Walkers& walkers, int64_t certain)
      : problem_(problem),
        walkers_(walkers),
        threads_(walkers.threads),
        certain_(certain),
        shares_(problem.load.shares()) {}

  ServingSearchResult Run() {
    ServingSpace space = WalkServingSpace(problem_);
    result_.size = space.size;
    result_.cut_by_rule = std::move(space.cut_by_rule);
    ServingProspects prospects = PrepareProspects(problem_, std::move(space.branches), walkers_);
    branches_ = std::move(prospects.branches);
    pending_ = std::move(prospects.all);
    result_.cut_by_memory = prospects.cut_by_memory;
    std::ranges::stable_sort(pending_, {}, &ServingProspect::bound);
    walkers_.GoOnOrThrow();
    SimulateEasiest();
    size_t next = 0;
    while (next < pending_.size() && !CutByBound(pending_[next].bound) && !HasEnough()) {
      SimulateFrom(next);
      Tell(next);
    }
    if (next < pending_.size() && !CutByBound(pending_[next].bound)) LeaveFrom(next);
    RequireAny();
    std::ranges::stable_sort(result_.ranking, {}, &ServingEvaluation::rank);
    CountLeftOut();
    result_.simulated = std::ssize(result_.ranking);
    return std::move(result_);
  }

 private:
  /// True once the caller wants no more, and there is something to show.
  bool HasEnough() const {
    if (result_.ranking.empty()) {
      walkers_.GoOnOrThrow();
      return false;
    }
    return !walkers_.goes_on() || (walkers_.enough && walkers_.enough());
  }

  void Tell(size_t next) const {
    if (!walkers_.progress) return;
    WalkProgress progress = {.settled = static_cast<int64_t>(next),
                             .open_branches = std::ssize(pending_) - static_cast<int64_t>(next)};
    if (const auto best = std::ranges::min_element(result_.ranking, {}, &ServingEvaluation::rank);
        best != result_.ranking.end()) {
      progress.best_tokens_per_s = best->prediction.report.output_tokens_per_s();
      progress.gap = next < pending_.size() ? GapOf(pending_[next].bound, best->rank) : 0;
    }
    walkers_.progress(progress);
  }

  /// How much better a candidate of this bound may score: 1 where it may meet what the best misses.
  static double GapOf(const ServingRank& bound, const ServingRank& best) {
    if (bound.strain < best.strain) return 1;
    return best.score > 0 ? std::max(0.0, 1 - bound.score / best.score) : 0;
  }

  /// Counts what is left of pending_, from `next` on, as unexplored where it may still be better.
  void LeaveFrom(size_t next) {
    const ServingRank& best =
        std::ranges::min_element(result_.ranking, {}, &ServingEvaluation::rank)->rank;
    for (size_t i = next; i < pending_.size(); ++i) {
      ServingProspect& each = pending_[i];
      if (each.done || CutByBound(each.bound)) continue;
      each.done = true;
      ++result_.unexplored;
      result_.gap = std::max(result_.gap, GapOf(each.bound, best));
    }
  }

  /// What must be beaten; nothing as long as not enough were simulated.
  const ServingRank* ToBeat() const {
    return std::ssize(first_) < certain_ ? nullptr : &first_.back();
  }

  bool CutByBound(const ServingRank& bound) const { return ToBeat() && bound >= *ToBeat(); }

  /// Whether a limit that `done` never reached is all that the candidate differs in.
  bool RunsAs(const ServingEvaluation& done, const ServingCandidate& candidate) const {
    const ServingConfig& a = done.candidate.config;
    const ServingConfig& b = candidate.config;
    for (const ServingDimension& each : ServingDimensions()) {
      if (!each.is_limit && each.value(done.candidate) != each.value(candidate)) return false;
    }
    const ServingPrediction& ran = done.prediction;
    // What a draft model has in its cache of who lost his place depends on how many have one.
    if (a.draft.tokens > 0 && ran.preemptions > 0) return false;
    const auto free = [](int64_t limit, int64_t limit_of_done, int64_t reached) {
      return limit == limit_of_done || (reached < limit_of_done && reached <= limit);
    };
    // Whoever waited found room for the longest sequence at any time. But what prompts begin with
    // stays the longer in the cache, the larger that is.
    const int64_t blocks = ran.most_blocks + CeilDiv(a.limits.sequence_length, a.block_size) + 1;
    return free(b.limits.sequences, a.limits.sequences, ran.most_running) &&
           free(b.limits.tokens_per_step, a.limits.tokens_per_step, ran.most_rows) &&
           (a.cache_blocks == b.cache_blocks ||
            (!shares_ && a.cache_blocks >= blocks && b.cache_blocks >= blocks));
  }

  /// Of each number of GPUs the candidate that has most time to spare, among those of enough
  /// quality if there are any: likely to meet what others of as many do, so that what is worse
  /// shows soon.
  void SimulateEasiest() {
    std::map<int64_t, ServingProspect*> easiest;
    for (ServingProspect& each : pending_) {
      ServingProspect*& best = easiest[each.candidate->gpus()];
      const auto spares = [](const ServingProspect& of) {
        return std::pair(of.missed != nullptr, of.busy_s);
      };
      if (best == nullptr || spares(each) < spares(*best)) best = &each;
    }
    std::vector<Trial> trials;
    for (const auto& [gpus, each] : easiest) Take(*each, trials);
    Simulate(trials);
  }

  /// Takes candidates of pending_, from `next` on, for as long as one may be better than the best.
  void SimulateFrom(size_t& next) {
    std::vector<Trial> trials;
    for (; trials.size() < kRound && next < pending_.size(); ++next) {
      if (CutByBound(pending_[next].bound)) break;
      if (!pending_[next].done) Take(pending_[next], trials);
    }
    Simulate(trials);
  }

  /// Adds the candidate unless that is found not to be worth it.
  void Take(ServingProspect& pending, std::vector<Trial>& trials) {
    pending.done = true;
    const ServingCandidate& candidate = *pending.candidate;
    PreparedBranch& branch = *pending.branch;
    const BestCase best = branch.best->Of(pending.of);
    if (CutByBound(RankOf(problem_, candidate, best.report))) {
      ++refined_away_;
      return;
    }
    Trial trial;
    trial.evaluation.candidate = candidate;
    trial.branch = &branch;
    trial.of = pending.of;
    trial.bound = best.report;
    if (!PlanMemory(problem_.memory_bytes, *branch.memory, trial.evaluation)) {
      ++result_.cut_by_memory;
      return;
    }
    const auto runs_so = [&](const ServingEvaluation& done) {
      return RunsAs(done, trial.evaluation.candidate);
    };
    if (std::ranges::any_of(result_.ranking, runs_so)) {
      ++result_.alike;
      return;
    }
    trials.push_back(std::move(trial));
  }

  /// Whether the candidate may still become one of the first.
  bool Hopeful(const Trial& trial, const ServingProgress& progress) const {
    if (ToBeat() == nullptr) return true;
    const LoadReport outlook = trial.branch->best->Outlook(trial.bound, trial.of, progress);
    return RankOf(problem_, trial.evaluation.candidate, outlook) < *ToBeat();
  }

  void Simulate(std::vector<Trial>& trials) {
    OnThreads(threads_, trials.size(), [&](size_t i) {
      Trial& trial = trials[i];
      const ServingCandidate& candidate = trial.evaluation.candidate;
      const auto watch = [&](const ServingProgress& now) { return Hopeful(trial, now); };
      if (auto prediction = trial.branch->predictor->PredictWhile(
              candidate.config, problem_.load, problem_.CopyOf(candidate.config), watch)) {
        trial.ended = true;
        trial.evaluation.prediction = *std::move(prediction);
      }
    });
    for (Trial& trial : trials) {
      if (!trial.ended) {
        ++result_.cut_on_the_way;
        continue;
      }
      ServingEvaluation& done = trial.evaluation;
      done.rank = RankOf(problem_, done.candidate, done.prediction.report);
      first_.insert(std::ranges::upper_bound(first_, done.rank), done.rank);
      if (std::ssize(first_) > certain_) first_.pop_back();
      result_.ranking.push_back(std::move(done));
    }
  }

  /// Those that nobody had to simulate: of too little quality, where others meet all requirements;
  /// else by their bounds.
  void CountLeftOut() {
    const ServingRank& best = result_.best().rank;
    const auto may_be_better = [&](const ServingConfig& config, const ServingRank& rank) {
      if (rank.score < best.score) result_.held_back.insert({config.weights, config.cache});
    };
    result_.cut_by_bound = refined_away_;
    for (const ServingProspect& each : pending_) {
      if (each.done) continue;
      if (best.strain > 0 || each.missed == nullptr) {
        ++result_.cut_by_bound;
        continue;
      }
      ++result_.cut_by_rule[each.missed->text()];
      may_be_better(each.candidate->config, each.bound);
    }
    if (best.strain > 0) return;
    for (const ServingEvaluation& each : result_.ranking) {
      const ServingConfig& config = each.candidate.config;
      if (problem_.MissedQuality(config) != nullptr) may_be_better(config, each.rank);
    }
  }

  void RequireAny() const {
    if (!result_.ranking.empty()) return;
    std::string why;
    if (result_.cut_by_memory > 0) why = fmt::format(": {} do not fit", result_.cut_by_memory);
    for (const auto& [rule, count] : result_.cut_by_rule) {
      why += fmt::format("{}{} by {}", why.empty() ? ": " : ", ", count, rule);
    }
    throw InfeasibleError(
        fmt::format("none of {} candidates can serve the load with {} of memory per rank{}",
                    result_.size, FormatBytes(problem_.memory_bytes), why));
  }

  const ServingProblem& problem_;
  const Walkers& walkers_;
  int threads_;
  int64_t certain_;
  bool shares_;  // prompts what they begin with
  ServingSearchResult result_;
  std::vector<std::unique_ptr<PreparedBranch>> branches_;
  std::vector<ServingProspect> pending_;  // the likeliest first
  int64_t refined_away_ = 0;              // of these, by bounds that took their time
  std::vector<ServingRank> first_;        // of the ranking: as many as are to be certain
};

}  // namespace

ServingSearchResult SearchServing(const ServingProblem& problem, const Walkers& walkers,
                                  int64_t certain) {
  return Search(problem, walkers, certain).Run();
}

}  // namespace trimtab

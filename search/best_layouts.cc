#include "search/best_layouts.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "search/space_tree.h"

namespace trimtab {
namespace {

/// Branches that are expanded before what they found counts: as many on any number of threads, so
/// that all see the same. Few, for the first ones are looked at with nothing to compare them to.
constexpr size_t kBranchesOfRound = 16;

/// A candidate's number has its place within a branch, that one's within its own, ...
constexpr int64_t kMostWithin = int64_t{1} << 16;

/// A part of the space.
struct Branch {
  double score = 0;  // none below it has less
  int64_t number = 0;
  uint64_t family = 0;  // branches of a family cost alike, so one thread remembers their costs
  LayoutPart chosen = LayoutPart::kMicroBatch;
  Choice choice{};

  /// The order of a heap whose top is the best.
  static bool IsWorse(const std::unique_ptr<Branch>& a, const std::unique_ptr<Branch>& b) {
    return std::pair(a->score, a->number) > std::pair(b->score, b->number);
  }
};

/// What became of what was left out.
struct Cuts {
  WalkCounts counts;
  double least_score = std::numeric_limits<double>::infinity();  // of what a bound cut
};

/// What an expanded branch gave.
struct Harvest {
  std::vector<std::unique_ptr<Branch>> branches;
  std::vector<Shortlisted> candidates;
  Cuts cuts;
};

/// Shapes of a micro batch, whichever way sequences are cut.
uint64_t FamilyOf(const ParallelConfig& layout) {
  uint64_t family = 0;
  for (const int64_t size : {layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch,
                             layout.tp_overlap_chunks, static_cast<int64_t>(layout.precision)}) {
    family = (family ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15ULL;
    family ^= family >> 32;
  }
  return family;
}

/// What one thread works with.
class Worker {
 public:
  Worker(const Problem& problem, bool limited, Predictor& predictor)
      : problem_(problem),
        limited_(limited),
        predictor_(predictor),
        tree_(problem),
        run_(RootOf(problem)),
        depths_{tree_.DepthBelow("recompute"), tree_.DepthBelow("vp")} {}

  /// The branches of the whole space, without bounds, by number.
  std::vector<std::unique_ptr<Branch>> Plant() {
    std::vector<std::unique_ptr<Branch>> branches;
    const auto enters = [&](size_t depth, const RunConfig& run) {
      if (depth < depths_[0]) return true;
      branches.push_back(std::make_unique<Branch>());
      branches.back()->number = static_cast<int64_t>(branches.size());
      branches.back()->family = FamilyOf(run.layout);
      branches.back()->choice = ChoiceOf(run);
      return false;
    };
    tree_.Walk(0, run_, enters, [](const RunConfig&) {});
    return branches;
  }

  /// Bounds `branch`; false: nothing below it may stay on `list`, and `cuts` says why.
  bool Admits(const LayoutList& list, Branch& branch, Cuts& cuts) {
    Bind(branch.choice, run_);
    return Admits(list, run_, branch.chosen, branch.score, cuts);
  }

  void Expand(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    Bind(branch.choice, run_);
    if (branch.chosen == LayoutPart::kMicroBatch) return Divide(list, branch, harvest);
    double score = 0;
    if (Admits(list, run_, LayoutPart::kPasses, score, harvest.cuts)) {
      Visit(list, branch, harvest);
    }
  }

  /// Plain data parallelism, where it fits.
  std::vector<Shortlisted> Plain() {
    std::vector<Shortlisted> plain;
    RunConfig run = RootOf(problem_);
    const auto enters = [](size_t, const RunConfig& bound) { return IsPlain(bound.layout); };
    SpaceTree(problem_).Walk(0, run, enters, [&](const RunConfig& found) {
      Prediction prediction = predictor_.ClosedForm(found);
      if (Fits(found, prediction.peak_mem_bytes)) plain.push_back({0, found, prediction});
    });
    return plain;
  }

  bool MayTake(const LayoutList& list, const Branch& branch) const {
    return list.MayTake(branch.choice.layout, DepthOf(branch.chosen), branch.score);
  }

  int64_t CountBelow(const Branch& branch) {
    Bind(branch.choice, run_);
    return tree_.CountBelow(DepthOf(branch.chosen), run_);
  }

  /// What the rules left out since.
  std::map<const Rule*, int64_t> TakePruned() { return tree_.TakePruned(); }

 private:
  size_t DepthOf(LayoutPart part) const {
    if (part >= LayoutPart::kSharding) return tree_.depth();
    return part == LayoutPart::kMicroBatch ? depths_[0] : depths_[1];
  }

  bool Admits(const LayoutList& list, RunConfig& run, LayoutPart chosen, double& score,
              Cuts& cuts) {
    const StepBound bound = predictor_.Bound(run, chosen);
    const auto tokens = static_cast<double>(run.global_batch * run.sequence_length);
    score = Score(list.objective(), run, tokens / bound.step_time_s, bound.peak_mem_bytes);
    if (!Fits(run, bound.peak_mem_bytes)) {
      cuts.counts.cut_by_memory += tree_.CountBelow(DepthOf(chosen), run);
      return false;
    }
    if (!list.MayTake(run.layout, DepthOf(chosen), score)) {
      cuts.counts.cut_by_bound += tree_.CountBelow(DepthOf(chosen), run);
      cuts.least_score = std::min(cuts.least_score, score);
      return false;
    }
    return true;
  }

  bool Fits(const RunConfig& run, int64_t bytes) const {
    return !limited_ || run.memory_per_rank_bytes == 0 || bytes <= run.memory_per_rank_bytes;
  }

  void Divide(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    int64_t within = 0;
    const auto enters = [&](size_t depth, RunConfig& run) {
      if (depth < depths_[1]) return true;
      const int64_t number = branch.number * kMostWithin + within++;
      double score = 0;
      if (!Admits(list, run, LayoutPart::kPipeline, score, harvest.cuts)) return false;
      harvest.branches.push_back(std::make_unique<Branch>(
          Branch{score, number, branch.family, LayoutPart::kPipeline, ChoiceOf(run)}));
      return false;
    };
    tree_.Walk(depths_[0], run_, enters, [](const RunConfig&) {});
    TRIMTAB_ASSERT(within <= kMostWithin, "{} branches of a branch", within);
  }

  void Visit(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    int64_t within = 0;
    const auto enters = [](size_t, const RunConfig&) { return true; };
    tree_.Walk(depths_[1], run_, enters, [&](RunConfig& run) {
      const int64_t number = branch.number * kMostWithin + within++;
      double score = 0;
      for (const LayoutPart chosen : {LayoutPart::kSharding, LayoutPart::kWhole}) {
        if (!Admits(list, run, chosen, score, harvest.cuts)) return;
      }
      ++harvest.cuts.counts.visited;
      Prediction prediction = predictor_.ClosedForm(run);
      if (!Fits(run, prediction.peak_mem_bytes)) return;
      ++harvest.cuts.counts.fitting;
      const double figure = PredictionKey(list.objective(), run, prediction).first;
      if (!list.MayTake(run.layout, tree_.depth(), figure) && !list.Misses(run.layout)) return;
      harvest.candidates.push_back({number, run, std::move(prediction)});
    });
    TRIMTAB_ASSERT(within <= kMostWithin, "{} candidates of a branch", within);
  }

  const Problem& problem_;
  bool limited_;
  Predictor& predictor_;
  SpaceTree tree_;
  RunConfig run_;
  std::array<size_t, 2> depths_;  // of what is below a micro batch, and below a pipeline
};

class BestFirst {
 public:
  /// `limited`: what does not fit is left out.
  BestFirst(const Problem& problem, LayoutList& list, bool limited, Predictor& predictor,
            int threads)
      : list_(list) {
    workers_.push_back(std::make_unique<Worker>(problem, limited, predictor));
    for (int i = 1; i < threads; ++i) {
      std::unique_ptr<Predictor> another = predictor.For(problem);
      if (another == nullptr) break;
      workers_.push_back(std::make_unique<Worker>(problem, limited, *another));
      predictors_.push_back(std::move(another));
    }
  }

  BestLayouts Run() {
    std::vector<std::unique_ptr<Branch>> branches = workers_.front()->Plant();
    BoundAll(branches);
    std::make_heap(branches.begin(), branches.end(), Branch::IsWorse);
    while (!branches.empty()) Round(branches);
    CountCut();
    AddPlain();
    BestLayouts best;
    std::map<const Rule*, int64_t> pruned;
    for (const auto& worker : workers_) {
      for (const auto& [rule, count] : worker->TakePruned()) pruned[rule] += count;
    }
    counts_.cut_by_rule = ByRule(pruned);
    counts_.size = counts_.visited + counts_.cut_by_memory + counts_.cut_by_bound;
    for (const auto& [rule, count] : counts_.cut_by_rule) counts_.size += count;
    best.counts = counts_;
    best.list = list_.Take();
    return best;
  }

  /// What reports call a gap of 0: no bound that cut is better than the best that was found.
  void RequireNoGap(const BestLayouts& best) const {
    for (const auto& each : best.list) {
      if (PredictionKey(list_.objective(), each->run, each->prediction).first <= least_cut_score_) {
        return;
      }
    }
    TRIMTAB_ASSERT(counts_.cut_by_bound == 0, "a bound of {} cut what is better than the best",
                   least_cut_score_);
  }

 private:
  /// Calls `work(worker, index)` for each branch, those of a family on one thread.
  void ForEach(const std::vector<std::unique_ptr<Branch>>& branches,
               const std::function<void(Worker& worker, size_t index)>& work) {
    std::vector<std::exception_ptr> errors(workers_.size());
    const auto work_on_own = [&](size_t own) {
      try {
        for (size_t i = 0; i < branches.size(); ++i) {
          if (branches[i]->family % workers_.size() == own) work(*workers_[own], i);
        }
      } catch (...) {
        errors[own] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> others;
      for (size_t own = 1; own < workers_.size(); ++own) others.emplace_back(work_on_own, own);
      work_on_own(0);
    }
    for (const std::exception_ptr& error : errors) {
      if (error != nullptr) std::rethrow_exception(error);
    }
  }

  void BoundAll(std::vector<std::unique_ptr<Branch>>& branches) {
    std::vector<Cuts> cuts(branches.size());
    std::vector<char> admitted(branches.size());
    ForEach(branches, [&](Worker& worker, size_t i) {
      admitted[i] = worker.Admits(list_, *branches[i], cuts[i]) ? 1 : 0;
    });
    for (size_t i = 0; i < branches.size(); ++i) {
      Add(cuts[i]);
      if (admitted[i] == 0) branches[i] = nullptr;
    }
    std::erase(branches, nullptr);
  }

  /// Expands the best of a heap of branches, and adds theirs.
  void Round(std::vector<std::unique_ptr<Branch>>& branches) {
    std::vector<std::unique_ptr<Branch>> round;
    while (!branches.empty() && round.size() < kBranchesOfRound) {
      std::pop_heap(branches.begin(), branches.end(), Branch::IsWorse);
      const bool open = workers_.front()->MayTake(list_, *branches.back());
      if (!open) least_cut_score_ = std::min(least_cut_score_, branches.back()->score);
      (open ? round : cut_).push_back(std::move(branches.back()));
      branches.pop_back();
    }
    std::vector<Harvest> harvests(round.size());
    ForEach(round, [&](Worker& worker, size_t i) { worker.Expand(list_, *round[i], harvests[i]); });
    for (Harvest& harvest : harvests) {
      Add(harvest.cuts);
      for (const Shortlisted& each : harvest.candidates) {
        list_.Offer(each.number, each.run, each.prediction);
      }
      for (std::unique_ptr<Branch>& branch : harvest.branches) {
        branches.push_back(std::move(branch));
        std::push_heap(branches.begin(), branches.end(), Branch::IsWorse);
      }
    }
  }

  void CountCut() {
    std::vector<int64_t> counts(cut_.size());
    ForEach(cut_, [&](Worker& worker, size_t i) { counts[i] = worker.CountBelow(*cut_[i]); });
    for (const int64_t count : counts) counts_.cut_by_bound += count;
    cut_.clear();
  }

  /// Plain layouts stay also where a bound cut them.
  void AddPlain() {
    int64_t number = std::numeric_limits<int64_t>::max();
    for (Shortlisted& plain : workers_.front()->Plain()) {
      if (!list_.Misses(plain.run.layout)) continue;
      list_.Offer(number--, plain.run, plain.prediction);
      --counts_.cut_by_bound;
      ++counts_.visited;
      ++counts_.fitting;
    }
  }

  void Add(const Cuts& cuts) {
    const WalkCounts& counts = cuts.counts;
    least_cut_score_ = std::min(least_cut_score_, cuts.least_score);
    counts_.visited += counts.visited;
    counts_.fitting += counts.fitting;
    counts_.cut_by_memory += counts.cut_by_memory;
    counts_.cut_by_bound += counts.cut_by_bound;
  }

  LayoutList& list_;
  WalkCounts counts_;
  double least_cut_score_ = std::numeric_limits<double>::infinity();
  std::vector<std::unique_ptr<Branch>> cut_;
  std::vector<std::unique_ptr<Predictor>> predictors_;  // of all workers but the first
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

BestLayouts FindBestLayouts(const Problem& problem, Shortlist list, Predictor& predictor,
                            int threads) {
  RequireSensible(problem);
  BestFirst walk(problem, list, /*limited=*/true, predictor, threads);
  BestLayouts best = walk.Run();
  walk.RequireNoGap(best);
  return best;
}

BestLayouts FindOthers(const Problem& problem, LayoutList& list, Predictor& predictor,
                       int threads) {
  RequireSensible(problem);
  return BestFirst(problem, list, /*limited=*/true, predictor, threads).Run();
}

std::optional<Shortlisted> FindLeanest(const Problem& problem, Predictor& predictor, int threads) {
  RequireSensible(problem);
  Shortlist of_one(Objective::kMemory, 1, 0);
  BestFirst walk(problem, of_one, /*limited=*/false, predictor, threads);
  const BestLayouts best = walk.Run();
  walk.RequireNoGap(best);
  const Shortlisted* leanest = nullptr;
  for (const auto& each : best.list) {
    if (leanest == nullptr ||
        each->prediction.peak_mem_bytes < leanest->prediction.peak_mem_bytes) {
      leanest = each.get();
    }
  }
  return leanest == nullptr ? std::nullopt : std::optional(*leanest);
}

}  // namespace trimtab

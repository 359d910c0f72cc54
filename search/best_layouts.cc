#include "search/best_layouts.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "search/on_threads.h"
#include "search/space_tree.h"

namespace trimtab {
namespace {

/// Branches that are expanded before what they found counts: as many on any number of threads, so
/// that all see the same. Few, for the first ones are looked at with nothing to compare them to.
constexpr size_t kBranchesOfRound = 8;

/// A candidate's number has its place within a branch, that one's within its own, ...
constexpr int64_t kMostWithin = int64_t{1} << 13;
constexpr int64_t kMostBranches = int64_t{1} << 24;  // of the whole space

/// Branches by what is chosen of their layouts.
struct Level {
  LayoutPart chosen{};
  const char* last_row;  // that is bound
  /// Branches are taken by their score times this. The sooner the list has good candidates, the
  /// more is cut at once and need not be kept: so what has more chosen comes first, unless it is
  /// much worse.
  double preference = 1;
};
constexpr std::array kLevels = {Level{LayoutPart::kShape, "tp_overlap_chunks", 1},
                                Level{LayoutPart::kMicroBatch, "recompute", 0.95},
                                Level{LayoutPart::kPipeline, "vp", 0.85}};

/// A part of the space.
struct Branch {
  double score = 0;  // none below it has less
  int64_t number = 0;
  uint32_t family = 0;  // branches of a family cost alike, so one thread remembers their costs
  uint32_t level = 0;
  Choice choice{};

  double urgency() const { return kLevels[level].preference * score; }
  /// The order of a heap whose top is to be expanded first.
  static bool IsLater(const Branch& a, const Branch& b) {
    return std::pair(a.urgency(), a.number) > std::pair(b.urgency(), b.number);
  }
};

/// What became of the candidates, but for what rules left out.
struct Cuts {
  WalkCounts counts;
  std::map<std::string, int64_t> by_requirement;
  double least_score = std::numeric_limits<double>::infinity();  // of what a bound cut
};

/// What an expanded branch gave.
struct Harvest {
  std::vector<Branch> branches;
  std::vector<Shortlisted> candidates;
};

/// Shapes of a micro batch, whichever way sequences are cut.
uint32_t FamilyOf(const ParallelConfig& layout) {
  uint64_t family = 0;
  for (const int64_t size : {layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch,
                             layout.tp_overlap_chunks, static_cast<int64_t>(layout.precision)}) {
    family = (family ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15ULL;
    family ^= family >> 32;
  }
  return static_cast<uint32_t>(family);
}

/// What one thread works with.
class Worker {
 public:
  Worker(const Problem& problem, bool limited, Predictor& predictor)
      : problem_(problem),
        limited_(limited),
        predictor_(predictor),
        tree_(problem),
        speed_(problem) {
    for (size_t i = 0; i < kLevels.size(); ++i) depths_[i] = tree_.DepthBelow(kLevels[i].last_row);
  }

  /// The branches of the whole space, without bounds, by number.
  std::vector<Branch> Plant() {
    std::vector<Branch> branches;
    tree_.Bind({});
    const auto enters = [&](size_t depth, const RunConfig& run) {
      if (depth < depths_[0]) return true;
      branches.push_back({.number = static_cast<int64_t>(branches.size()),
                          .family = FamilyOf(run.layout),
                          .choice = tree_.choice()});
      return false;
    };
    tree_.Walk(0, enters, [](const RunConfig&) {});
    TRIMTAB_ASSERT(branches.size() <= kMostBranches, "{} branches", branches.size());
    return branches;
  }

  /// Bounds `branch`; false: nothing below it may stay on `list`.
  bool Admits(const LayoutList& list, Branch& branch) {
    tree_.Bind(branch.choice);
    return Admits(list, kLevels[branch.level].chosen, depths_[branch.level], branch.score);
  }

  void Expand(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    tree_.Bind(branch.choice);
    if (branch.level + 1 < kLevels.size()) return Divide(list, branch, harvest);
    double score = 0;
    if (Admits(list, LayoutPart::kPasses, depths_[branch.level], score)) {
      Visit(list, branch, harvest);
    }
  }

  /// Plain data parallelism, where it fits.
  std::vector<Shortlisted> Plain() {
    std::vector<Shortlisted> plain;
    const auto enters = [](size_t, const RunConfig& bound) { return IsPlain(bound.layout); };
    SpaceTree(problem_).Walk(0, enters, [&](const RunConfig& found) {
      Prediction prediction = predictor_.ClosedForm(found);
      if (!Fits(found, prediction.peak_mem_bytes)) return;
      if (Unmet(found, prediction.tokens_per_s) != nullptr) return;
      plain.push_back({0, found, prediction});
    });
    return plain;
  }

  /// Whether something below `branch` may stay on `list`.
  bool MayTake(const LayoutList& list, const Branch& branch) {
    tree_.Bind(branch.choice);
    return MayTake(list, depths_[branch.level], branch.score);
  }

  /// What became of the candidates that this worker came to.
  const Cuts& cuts() const { return cuts_; }
  /// What the rules left out since.
  std::map<const Rule*, int64_t> TakePruned() { return tree_.TakePruned(); }

 private:
  /// What is below the place in the tree, whose rows above `depth` are bound.
  bool Admits(const LayoutList& list, LayoutPart chosen, size_t depth, double& score) {
    const RunConfig& run = tree_.run();
    const StepBound bound = predictor_.Bound(run, chosen);
    const auto tokens = static_cast<double>(run.global_batch * run.sequence_length);
    score = Score(list.objective(), run, tokens / bound.step_time_s, bound.peak_mem_bytes);
    if (!Fits(run, bound.peak_mem_bytes)) {
      cuts_.counts.cut_by_memory += tree_.CountBelow(depth);
      return false;
    }
    if (const TrainingRequirement* unmet = Unmet(run, tokens / bound.step_time_s)) {
      cuts_.by_requirement[unmet->id()] += tree_.CountBelow(depth);
      return false;
    }
    return MayTake(list, depth, score);
  }

  bool MayTake(const LayoutList& list, size_t depth, double score) {
    if (list.MayTake(tree_.run(), depth, score)) return true;
    cuts_.counts.cut_by_bound += tree_.CountBelow(depth);
    cuts_.least_score = std::min(cuts_.least_score, score);
    return false;
  }

  bool Fits(const RunConfig& run, int64_t bytes) const {
    return !limited_ || run.memory_per_rank_bytes == 0 || bytes <= run.memory_per_rank_bytes;
  }

  const TrainingRequirement* Unmet(const RunConfig& run, double tokens_per_s) const {
    return limited_ ? speed_.FirstUnmet(run.layout.world_size(), tokens_per_s) : nullptr;
  }

  /// Into the branches of the next level.
  void Divide(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    const uint32_t level = branch.level + 1;
    int64_t within = 0;
    const auto enters = [&](size_t depth, const RunConfig&) {
      if (depth < depths_[level]) return true;
      const int64_t number = branch.number * kMostWithin + within++;
      double score = 0;
      if (Admits(list, kLevels[level].chosen, depth, score)) {
        harvest.branches.push_back({score, number, branch.family, level, tree_.choice()});
      }
      return false;
    };
    tree_.Walk(depths_[branch.level], enters, [](const RunConfig&) {});
    TRIMTAB_ASSERT(within <= kMostWithin, "{} branches of a branch", within);
  }

  void Visit(const LayoutList& list, const Branch& branch, Harvest& harvest) {
    int64_t within = 0;
    const auto enters = [](size_t, const RunConfig&) { return true; };
    tree_.Walk(depths_[branch.level], enters, [&](const RunConfig& run) {
      const int64_t number = branch.number * kMostWithin + within++;
      double score = 0;
      for (const LayoutPart chosen :
           {LayoutPart::kSharding, LayoutPart::kLayers, LayoutPart::kWhole}) {
        if (!Admits(list, chosen, tree_.depth(), score)) return;
      }
      Prediction prediction = predictor_.ClosedForm(run);
      if (const TrainingRequirement* unmet = Unmet(run, prediction.tokens_per_s)) {
        ++cuts_.by_requirement[unmet->id()];
        return;
      }
      ++cuts_.counts.visited;
      if (!Fits(run, prediction.peak_mem_bytes)) return;
      ++cuts_.counts.fitting;
      const double figure = PredictionKey(list.objective(), run, prediction).first;
      if (!list.MayTake(run, tree_.depth(), figure) && !list.Misses(run)) return;
      harvest.candidates.push_back({number, run, std::move(prediction)});
    });
    TRIMTAB_ASSERT(within <= kMostWithin, "{} candidates of a branch", within);
  }

  const Problem& problem_;
  bool limited_;
  Predictor& predictor_;
  SpaceTree tree_;
  SpeedRequirements speed_;
  std::array<size_t, kLevels.size()> depths_{};  // of what is below a branch of each level
  Cuts cuts_;
};

class BestFirst {
 public:
  /// `limited`: what does not fit is left out.
  BestFirst(const Problem& problem, LayoutList& list, bool limited, Predictor& predictor,
            int threads)
      : list_(list) {
    for (int i = 0; i < threads; ++i) {
      Predictor* const own = predictor.OfThread(i);
      if (own == nullptr) break;
      workers_.push_back(std::make_unique<Worker>(problem, limited, *own));
    }
    loads_.resize(workers_.size());
  }

  BestLayouts Run() {
    std::vector<Branch> branches = workers_.front()->Plant();
    BoundAll(branches);
    std::make_heap(branches.begin(), branches.end(), Branch::IsLater);
    while (!branches.empty()) Round(branches);
    BestLayouts best;
    std::map<const Rule*, int64_t> pruned;
    for (const auto& worker : workers_) {
      Add(worker->cuts());
      for (const auto& [rule, count] : worker->TakePruned()) pruned[rule] += count;
    }
    AddPlain();
    counts_.cut_by_rule = ByRule(pruned);
    for (const auto& [requirement, count] : by_requirement_) {
      counts_.cut_by_rule.emplace_back(requirement, count);
    }
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
  /// Calls `work(worker, index)` for each branch: those of a family on the thread that has its
  /// costs at hand, unless another one has nothing left to do.
  void ForEach(const std::vector<Branch>& branches,
               const std::function<void(Worker& worker, size_t index)>& work) {
    std::vector<size_t> owners;
    for (const Branch& branch : branches) owners.push_back(OwnerOf(branch));
    std::vector<std::atomic<bool>> taken(branches.size());
    OnThreads(static_cast<int>(workers_.size()), workers_.size(), [&](size_t own) {
      for (const bool others : {false, true}) {
        for (size_t i = 0; i < branches.size(); ++i) {
          if ((owners[i] != own) == others && !taken[i].exchange(true)) work(*workers_[own], i);
        }
      }
    });
  }

  /// The worker whose family it is: when it is first met, the one with the least to do so far,
  /// which deals out neighbouring families evenly. What is found does not depend on it.
  size_t OwnerOf(const Branch& branch) {
    const auto least = std::min_element(loads_.begin(), loads_.end()) - loads_.begin();
    const auto [owner, is_new] = owners_.try_emplace(branch.family, static_cast<size_t>(least));
    ++loads_[owner->second];
    return owner->second;
  }

  void BoundAll(std::vector<Branch>& branches) {
    std::vector<char> admitted(branches.size());
    ForEach(branches, [&](Worker& worker, size_t i) {
      admitted[i] = worker.Admits(list_, branches[i]) ? 1 : 0;
    });
    size_t left = 0;
    for (size_t i = 0; i < branches.size(); ++i) {
      if (admitted[i] != 0) branches[left++] = branches[i];
    }
    branches.resize(left);
  }

  /// Expands the first of a heap of branches, and adds theirs.
  void Round(std::vector<Branch>& branches) {
    std::vector<Branch> round;
    while (!branches.empty() && round.size() < kBranchesOfRound) {
      std::pop_heap(branches.begin(), branches.end(), Branch::IsLater);
      if (workers_.front()->MayTake(list_, branches.back())) round.push_back(branches.back());
      branches.pop_back();
    }
    std::vector<Harvest> harvests(round.size());
    ForEach(round, [&](Worker& worker, size_t i) { worker.Expand(list_, round[i], harvests[i]); });
    for (const Harvest& harvest : harvests) {
      for (const Shortlisted& each : harvest.candidates) {
        list_.Offer(each.number, each.run, each.prediction);
      }
      for (const Branch& branch : harvest.branches) {
        branches.push_back(branch);
        std::push_heap(branches.begin(), branches.end(), Branch::IsLater);
      }
    }
  }

  /// Plain layouts stay also where a bound cut them.
  void AddPlain() {
    int64_t number = std::numeric_limits<int64_t>::max();
    for (Shortlisted& plain : workers_.front()->Plain()) {
      if (!list_.Misses(plain.run)) continue;
      list_.Offer(number--, plain.run, plain.prediction);
      --counts_.cut_by_bound;
      ++counts_.visited;
      ++counts_.fitting;
    }
  }

  void Add(const Cuts& cuts) {
    const WalkCounts& counts = cuts.counts;
    least_cut_score_ = std::min(least_cut_score_, cuts.least_score);
    for (const auto& [id, count] : cuts.by_requirement) by_requirement_[id] += count;
    counts_.visited += counts.visited;
    counts_.fitting += counts.fitting;
    counts_.cut_by_memory += counts.cut_by_memory;
    counts_.cut_by_bound += counts.cut_by_bound;
  }

  LayoutList& list_;
  WalkCounts counts_;
  std::map<std::string, int64_t> by_requirement_;
  double least_cut_score_ = std::numeric_limits<double>::infinity();
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int64_t> loads_;                   // branches that each has been given
  std::unordered_map<uint32_t, size_t> owners_;  // by family
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

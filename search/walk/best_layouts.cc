#include "search/walk/best_layouts.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/on_threads.h"
#include "search/walk/branches.h"

namespace trimtab {
namespace {

/// Branches that are expanded before what they found counts: as many on any number of threads, so
/// that all see the same. Enough that threads seldom wait for each other, and few enough that
/// little is looked at that what is found beside it would have cut.
constexpr size_t kBranchesOfRound = 128;

class BestFirst {
 public:
  /// `limited`: what does not fit is left out.
  BestFirst(const Problem& problem, LayoutList& list, bool limited, Predictor& predictor,
            const Walkers& walkers)
      : list_(list), predictor_(predictor), walkers_(walkers) {
    for (int i = 0; i < walkers.threads; ++i) {
      Predictor* const own = predictor.OfThread(i);
      if (own == nullptr) break;
      workers_.push_back(std::make_unique<BranchWorker>(problem, limited, *own));
    }
    loads_.resize(workers_.size());
  }

  BestLayouts Run() {
    std::vector<Branch> branches = workers_.front()->Plant();
    BoundAll(branches);
    std::make_heap(branches.begin(), branches.end(), Branch::IsLater);
    while (!branches.empty()) {
      walkers_.GoOnOrThrow();
      Round(branches);
    }
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

  /// What reports call a gap of 0: no bound that cut is better than the best that was found, but
  /// for what does not matter among plans of recomputation.
  void RequireNoGap(const BestLayouts& best) const {
    const double share = 1 - PlanSlack(list_.objective());
    for (const auto& each : best.list) {
      const double score = PredictionKey(list_.objective(), each->run, each->prediction).first;
      if (share * score <= least_cut_score_) return;
    }
    TRIMTAB_ASSERT(counts_.cut_by_bound == 0, "a bound of {} cut what is better than the best",
                   least_cut_score_);
  }

 private:
  /// Calls `work(worker, index)` for each branch: those of a family on the thread that has its
  /// costs at hand, unless another one has nothing left to do.
  void ForEach(const std::vector<Branch>& branches,
               const std::function<void(BranchWorker& worker, size_t index)>& work) {
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
    ForEach(branches, [&](BranchWorker& worker, size_t i) {
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
    predictor_.ForgetIfMany();
    std::vector<Harvest> harvests(round.size());
    ForEach(round,
            [&](BranchWorker& worker, size_t i) { worker.Expand(list_, round[i], harvests[i]); });
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
  Predictor& predictor_;
  const Walkers& walkers_;
  WalkCounts counts_;
  std::map<std::string, int64_t> by_requirement_;
  double least_cut_score_ = std::numeric_limits<double>::infinity();
  std::vector<std::unique_ptr<BranchWorker>> workers_;
  std::vector<int64_t> loads_;                   // branches that each has been given
  std::unordered_map<uint32_t, size_t> owners_;  // by family
};

}  // namespace

BestLayouts FindBestLayouts(const Problem& problem, Shortlist list, Predictor& predictor,
                            const Walkers& walkers) {
  RequireSensible(problem);
  BestFirst walk(problem, list, /*limited=*/true, predictor, walkers);
  BestLayouts best = walk.Run();
  walk.RequireNoGap(best);
  return best;
}

BestLayouts FindOthers(const Problem& problem, LayoutList& list, Predictor& predictor,
                       const Walkers& walkers) {
  RequireSensible(problem);
  return BestFirst(problem, list, /*limited=*/true, predictor, walkers).Run();
}

std::optional<Shortlisted> FindLeanest(const Problem& problem, Predictor& predictor,
                                       const Walkers& walkers) {
  RequireSensible(problem);
  Shortlist of_one(Objective::kMemory, 1, 0);
  BestFirst walk(problem, of_one, /*limited=*/false, predictor, walkers);
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

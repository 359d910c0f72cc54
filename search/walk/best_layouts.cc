#include "search/walk/best_layouts.h"

#include <algorithm>
#include <atomic>
#include <deque>
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
/// A class has thousands of branches, which all threads bound together.
constexpr size_t kClassesOfRound = 1;
/// Branches that are kept before those that lead nowhere any more are dropped.
constexpr size_t kManyBranches = 1 << 19;
/// Open branches whose scores are looked at, for the gap, for each round that is expanded.
constexpr size_t kScoresOfRound = 1024;

// Grows without a copy of itself: a space may leave millions open.
using Branches = std::deque<Branch>;

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

  /// `partial`: a stopped walk returns what it has, if anything.
  BestLayouts Run(bool partial) {
    std::vector<Branch> classes = workers_.front()->Classes();
    BoundAll(classes);
    Branches branches(classes.begin(), classes.end());
    std::make_heap(branches.begin(), branches.end(), Branch::IsLater);
    size_t many = kManyBranches;
    while (!branches.empty()) {
      const bool found = best_score_ != kUnknown;
      if (!walkers_.goes_on()) {
        if (!partial || !found) throw WalkStopped();
        break;
      }
      if (walkers_.enough && walkers_.enough()) {
        if (!partial) throw WalkStopped();
        if (found) break;
      }
      Round(branches);
      if (branches.size() > many) {
        DropHopeless(branches);
        many = std::max(kManyBranches, branches.size() + branches.size() / 4);
      }
      if (walkers_.progress) {
        WatchScores(branches);
        walkers_.progress(ProgressOf(branches));
      }
    }
    BestLayouts best;
    std::map<const Rule*, int64_t> pruned;
    for (const Branch& branch : branches) {
      if (!workers_.front()->MayTake(list_, branch)) continue;
      counts_.unexplored += workers_.front()->CountBelow(branch);
      least_left_score_ = std::min(least_left_score_, branch.score);
    }
    for (const auto& worker : workers_) {
      Add(worker->cuts());
      for (const auto& [rule, count] : worker->TakePruned()) pruned[rule] += count;
    }
    AddPlain();
    counts_.cut_by_rule = ByRule(pruned);
    for (const auto& [requirement, count] : by_requirement_) {
      counts_.cut_by_rule.emplace_back(requirement, count);
    }
    counts_.size =
        counts_.visited + counts_.cut_by_memory + counts_.cut_by_bound + counts_.unexplored;
    for (const auto& [rule, count] : counts_.cut_by_rule) counts_.size += count;
    best.counts = counts_;
    best.gap = Gap();
    best.list = list_.Take();
    return best;
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
  void Round(Branches& branches) {
    const std::vector<Branch> round = TakeRound(branches);
    predictor_.ForgetIfMany();
    std::vector<Branch> found;
    if (!round.empty() && round.front().is_class()) {
      for (const Branch& each : round) {
        const std::vector<Branch> planted = workers_.front()->Plant(each);
        found.insert(found.end(), planted.begin(), planted.end());
      }
      BoundAll(found);
    } else {
      found = ExpandAll(round);
    }
    for (const Branch& branch : found) {
      branches.push_back(branch);
      std::push_heap(branches.begin(), branches.end(), Branch::IsLater);
    }
  }

  /// The first branches that may still stay: some classes, or more of those below classes.
  std::vector<Branch> TakeRound(Branches& branches) {
    std::vector<Branch> round;
    while (!branches.empty()) {
      const bool is_class = branches.front().is_class();
      if (!round.empty() && round.front().is_class() != is_class) break;
      if (round.size() == (is_class ? kClassesOfRound : kBranchesOfRound)) break;
      std::pop_heap(branches.begin(), branches.end(), Branch::IsLater);
      if (workers_.front()->MayTake(list_, branches.back())) round.push_back(branches.back());
      branches.pop_back();
    }
    return round;
  }

  /// Offers the candidates of `round` to the list, and returns its branches.
  std::vector<Branch> ExpandAll(const std::vector<Branch>& round) {
    std::vector<Harvest> harvests(round.size());
    ForEach(round,
            [&](BranchWorker& worker, size_t i) { worker.Expand(list_, round[i], harvests[i]); });
    std::vector<Branch> found;
    for (const Harvest& harvest : harvests) {
      for (const Shortlisted& each : harvest.candidates) {
        const double score = PredictionKey(list_.objective(), each.run, each.prediction).first;
        if (score < best_score_) {
          best_score_ = score;
          best_tokens_per_s_ = each.prediction.tokens_per_s;
        }
        list_.Offer(each.place, each.run, each.prediction);
      }
      found.insert(found.end(), harvest.branches.begin(), harvest.branches.end());
    }
    return found;
  }

  /// Drops what may no longer stay: it would be dropped one by one when its turn comes.
  void DropHopeless(Branches& branches) {
    std::erase_if(branches,
                  [&](const Branch& each) { return !workers_.front()->MayTake(list_, each); });
    std::make_heap(branches.begin(), branches.end(), Branch::IsLater);
  }

  /// Finds the least score of what is open, at times: it only grows, for none below a branch has
  /// less.
  void WatchScores(const Branches& branches) {
    if (++rounds_ * kScoresOfRound < branches.size()) return;
    rounds_ = 0;
    least_open_score_ = kUnknown;
    for (const Branch& each : branches) {
      least_open_score_ = std::min(least_open_score_, each.score);
    }
  }

  WalkProgress ProgressOf(const Branches& branches) const {
    WalkProgress progress = {.open_branches = std::ssize(branches),
                             .best_tokens_per_s = best_tokens_per_s_};
    for (const auto& worker : workers_) {
      const WalkCounts& counts = worker->cuts().counts;
      progress.settled += counts.visited + counts.cut_by_memory + counts.cut_by_bound;
    }
    if (best_score_ != kUnknown) progress.gap = std::max(0.0, 1 - least_open_score_ / best_score_);
    return progress;
  }

  /// Bounds how much better than the best found any other candidate can be, by the bounds of all
  /// that was cut or left.
  double Gap() const {
    if (best_score_ == kUnknown) return 0;
    return std::max(0.0,
                    1 - least_left_score_ / (best_score_ * (1 - PlanSlack(list_.objective()))));
  }

  /// Plain layouts stay also where a bound cut them.
  void AddPlain() {
    // Behind all others in the order of the space.
    SpacePlace place;
    place.path.fill(std::numeric_limits<uint32_t>::max());
    for (Shortlisted& plain : workers_.front()->Plain()) {
      if (!list_.Misses(plain.run)) continue;
      --place.path.back();
      list_.Offer(place, plain.run, plain.prediction);
      --counts_.cut_by_bound;
      ++counts_.visited;
      ++counts_.fitting;
    }
  }

  void Add(const Cuts& cuts) {
    const WalkCounts& counts = cuts.counts;
    least_left_score_ = std::min(least_left_score_, cuts.least_score);
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
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  double least_left_score_ = kUnknown;  // by the bounds of what was cut, or is left
  double best_score_ = kUnknown;        // of the candidates that were offered
  double least_open_score_ = 0;         // when it was looked for last
  size_t rounds_ = 0;                   // since then
  double best_tokens_per_s_ = 0;
  std::vector<std::unique_ptr<BranchWorker>> workers_;
  std::vector<int64_t> loads_;                   // branches that each has been given
  std::unordered_map<uint32_t, size_t> owners_;  // by family
};

}  // namespace

size_t CountClasses(const Problem& problem, Predictor& predictor) {
  RequireSensible(problem);
  return BranchWorker(problem, /*limited=*/true, predictor).Classes().size();
}

BestLayouts FindBestLayouts(const Problem& problem, Shortlist list, Predictor& predictor,
                            const Walkers& walkers) {
  RequireSensible(problem);
  BestFirst walk(problem, list, /*limited=*/true, predictor, walkers);
  return walk.Run(/*partial=*/true);
}

BestLayouts FindOthers(const Problem& problem, LayoutList& list, Predictor& predictor,
                       const Walkers& walkers) {
  RequireSensible(problem);
  return BestFirst(problem, list, /*limited=*/true, predictor, walkers).Run(/*partial=*/false);
}

void RequireNoGap(const BestLayouts& best) {
  TRIMTAB_ASSERT(best.gap == 0, "a candidate up to {:.3g} % better than the best may have been cut",
                 100 * best.gap);
}

std::optional<Shortlisted> FindLeanest(const Problem& problem, Predictor& predictor,
                                       const Walkers& walkers) {
  RequireSensible(problem);
  Shortlist of_one(Objective::kMemory, 1, 0);
  BestFirst walk(problem, of_one, /*limited=*/false, predictor, walkers);
  const BestLayouts best = walk.Run(/*partial=*/false);
  RequireNoGap(best);
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

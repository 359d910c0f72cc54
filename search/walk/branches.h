// Branches of the space, and what one thread does with them: bounds one, divides it, visits what
// is below it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "search/space/predictor.h"
#include "search/space/requirements.h"
#include "search/space/space_tree.h"
#include "search/walk/best_layouts.h"
#include "search/walk/layout_list.h"

namespace trimtab {

/// A part of the space.
struct Branch {
  double score = 0;  // none below it has less
  SpacePlace place{};
  uint32_t family = 0;  // branches of a family cost alike, so one thread remembers their costs
  uint32_t level = 0;   // how much of its layout is chosen
  Choice choice{};

  /// True for numerics, ranks and a global batch: what is below has no bound yet.
  bool is_class() const { return level == 0; }
  /// Branches are taken by it, the least first.
  double urgency() const;
  /// The order of a heap whose top is to be expanded first.
  static bool IsLater(const Branch& a, const Branch& b);
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

/// Not thread-safe: one per thread. The problem and the predictor must outlive it.
class BranchWorker {
 public:
  /// `limited`: what does not fit, or does not meet a requirement, is left out.
  BranchWorker(const Problem& problem, bool limited, Predictor& predictor);

  /// The classes of the whole space, in its order: numerics, ranks and global batch.
  std::vector<Branch> Classes();
  /// The branches of a class, without bounds, in the order of the space.
  std::vector<Branch> Plant(const Branch& its_class);
  /// Bounds `branch`; false: nothing below it may stay on `list`.
  bool Admits(const LayoutList& list, Branch& branch);
  /// Divides it, or visits what is below it.
  void Expand(const LayoutList& list, const Branch& branch, Harvest& harvest);
  /// Plain data parallelism, where it fits.
  std::vector<Shortlisted> Plain();
  /// Whether something below `branch` may stay on `list`.
  bool MayTake(const LayoutList& list, const Branch& branch);
  /// Candidates below `branch`, whatever rules they break.
  int64_t CountBelow(const Branch& branch);

  /// What became of the candidates that this worker came to.
  const Cuts& cuts() const { return cuts_; }
  /// What the rules left out since.
  std::map<const Rule*, int64_t> TakePruned() { return tree_.TakePruned(); }

 private:
  using Plans = std::span<const RecomputeConfig>;
  /// What of a family is visited: layouts that differ in the plan alone, of one family of plans.
  struct Family {
    Plans plans;
    SpacePlace place{};  // of the first
    std::optional<Shortlisted> best = std::nullopt;
    SortKey key{};  // of the best

    double ToBeat(Objective objective) const { return key.first * (1 - PlanSlack(objective)); }
  };

  /// Bounds what is below the place in the tree, whose rows above `depth` are bound. `score`: the
  /// least that is known of it so far, and then with this bound.
  bool Admits(const LayoutList& list, LayoutPart chosen, size_t depth, double& score);
  /// Of `plans` alone, `each` candidates of each, those that fit by a bound: the first ones do not,
  /// and are not counted. Where nothing of any may stay on `list`, all are.
  std::optional<Plans> Admitted(const LayoutList& list, LayoutPart chosen, size_t depth,
                                Plans plans, int64_t each, double& score);
  /// The same of what `bound` bounds.
  bool AdmitsBound(const LayoutList& list, size_t depth, const StepBound& bound, int64_t candidates,
                   double& score);
  /// How many of `plans`, of which one may fit, cannot, from the first on: those that recompute too
  /// little.
  size_t TooLarge(LayoutPart chosen, Plans plans);
  bool MayTake(const LayoutList& list, size_t depth, double score);
  void CutByBound(int64_t candidates, double score);
  bool Fits(const RunConfig& run, int64_t bytes) const;
  const TrainingRequirement* Unmet(const RunConfig& run, double tokens_per_s) const;
  /// Leaves it, if at all, to when its finer bound is due; where there is none, visits it.
  void LookCloser(const LayoutList& list, const Branch& branch, Harvest& harvest);
  /// Into the branches of the next level.
  void Divide(const LayoutList& list, const Branch& branch, Harvest& harvest);
  void Visit(const LayoutList& list, const Branch& branch, Harvest& harvest);
  /// Looks for the best of its plans.
  void VisitFamily(const LayoutList& list, Family& family);
  /// Looks for the best of `plans`, a part of those of `family`.
  void VisitPlans(const LayoutList& list, Plans plans, Family& family);
  void VisitOne(const LayoutList& list, const RecomputeConfig& plan, Family& family);

  const Problem& problem_;
  bool limited_;
  Predictor& predictor_;
  SpaceTree tree_;
  SpeedRequirements speed_;
  std::vector<size_t> depths_;  // by level
  Cuts cuts_;
};

}  // namespace trimtab

#include "search/walk/branches.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "search/space/recompute_plans.h"

namespace trimtab {
namespace {

/// Branches by what is chosen of their layouts.
struct Level {
  LayoutPart chosen{};
  /// Branches are taken by their score times this. The sooner the list has good candidates, the
  /// more is cut at once and need not be kept: so what has more chosen comes first, unless it is
  /// much worse; and steps seldom reach 40 % of the peak rate that bounds a class.
  double preference = 1;
};
constexpr std::array kLevels = {
    Level{LayoutPart::kNumerics, 2.5},  Level{LayoutPart::kParts, 1},
    Level{LayoutPart::kShape, 1},       Level{LayoutPart::kPlans, 0.95},
    Level{LayoutPart::kPipeline, 0.85}, Level{LayoutPart::kSplitPasses, 0.85}};
static_assert(kLevels.size() == SpacePlace::kLevels);

/// The place of the `index`-th branch, or candidate, below one at `place` of `level`. The last
/// level has the branch of the level above it alone.
SpacePlace PlaceBelow(SpacePlace place, uint32_t level, size_t index) {
  place.path[std::min<size_t>(level + 1, SpacePlace::kLevels - 1)] = static_cast<uint32_t>(index);
  return place;
}

/// Shapes of a micro batch, whichever way sequences are cut.
uint32_t FamilyOf(const ParallelConfig& layout) {
  uint64_t family = 0;
  for (const int64_t size : {layout.tp, layout.cp, layout.ep, layout.etp, layout.tp_overlap_chunks,
                             static_cast<int64_t>(layout.numerics.precision)}) {
    family = (family ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15ULL;
    family ^= family >> 32;
  }
  return static_cast<uint32_t>(family);
}

}  // namespace

double Branch::urgency() const { return kLevels[level].preference * score; }

bool Branch::IsLater(const Branch& a, const Branch& b) {
  return std::pair(a.urgency(), a.place) > std::pair(b.urgency(), b.place);
}

BranchWorker::BranchWorker(const Problem& problem, bool limited, Predictor& predictor)
    : problem_(problem), limited_(limited), predictor_(predictor), tree_(problem), speed_(problem) {
  // The last level looks closer at what the one before it has bound.
  for (const Level& level : kLevels) {
    depths_.push_back(RowsOf(std::min(level.chosen, LayoutPart::kPipeline)));
  }
}

std::vector<Branch> BranchWorker::Classes() {
  std::vector<Branch> classes;
  tree_.Bind({});
  const auto enters = [&](size_t depth, const RunConfig&) {
    if (depth < depths_[0]) return true;
    classes.push_back(
        {.place = PlaceBelow({}, uint32_t(-1), classes.size()), .choice = tree_.choice()});
    return false;
  };
  tree_.Walk(0, enters, [](const RunConfig&) {});
  return classes;
}

std::vector<Branch> BranchWorker::Plant(const Branch& its_class) {
  std::vector<Branch> branches;
  tree_.Bind(its_class.choice);
  const auto enters = [&](size_t depth, const RunConfig& run) {
    if (depth < depths_[1]) return true;
    branches.push_back({.score = its_class.score,
                        .place = PlaceBelow(its_class.place, its_class.level, branches.size()),
                        .family = FamilyOf(run.layout),
                        .level = 1,
                        .choice = tree_.choice()});
    return false;
  };
  tree_.Walk(depths_[0], enters, [](const RunConfig&) {});
  return branches;
}

int64_t BranchWorker::CountBelow(const Branch& branch) {
  tree_.Bind(branch.choice);
  return tree_.CountBelow(depths_[branch.level]);
}

bool BranchWorker::Admits(const LayoutList& list, Branch& branch) {
  tree_.Bind(branch.choice);
  return Admits(list, kLevels[branch.level].chosen, depths_[branch.level], branch.score);
}

void BranchWorker::Expand(const LayoutList& list, const Branch& branch, Harvest& harvest) {
  tree_.Bind(branch.choice);
  switch (kLevels[branch.level].chosen) {
    case LayoutPart::kPipeline:
      return LookCloser(list, branch, harvest);
    case LayoutPart::kSplitPasses:
      return Visit(list, branch, harvest);
    default:
      return Divide(list, branch, harvest);
  }
}

std::vector<Shortlisted> BranchWorker::Plain() {
  std::vector<Shortlisted> plain;
  const auto enters = [](size_t, const RunConfig& bound) { return IsPlain(bound.layout); };
  SpaceTree(problem_).Walk(0, enters, [&](const RunConfig& found) {
    Prediction prediction = predictor_.ClosedForm(found);
    if (!Fits(found, prediction.peak_mem_bytes)) return;
    if (Unmet(found, prediction.tokens_per_s) != nullptr) return;
    plain.push_back({{}, found, prediction});
  });
  return plain;
}

bool BranchWorker::MayTake(const LayoutList& list, const Branch& branch) {
  tree_.Bind(branch.choice);
  return MayTake(list, depths_[branch.level], branch.score);
}

bool BranchWorker::Admits(const LayoutList& list, LayoutPart chosen, size_t depth, double& score) {
  // Until it is chosen, no bound looks at the plan.
  static const std::vector<RecomputeConfig> kAny(1);
  const Plans plans = chosen < LayoutPart::kPlans ? kAny : tree_.PlansBelow();
  if (plans.empty()) return false;
  const int64_t count = tree_.CountBelow(depth);
  if (chosen >= LayoutPart::kPipeline) {
    // As many candidates have one plan as another.
    return Admitted(list, chosen, depth, plans, count / std::ssize(plans), score).has_value();
  }
  return AdmitsBound(list, depth, predictor_.Bound(tree_.run(), chosen, RangeOf(plans)), count,
                     score);
}

std::optional<BranchWorker::Plans> BranchWorker::Admitted(const LayoutList& list, LayoutPart chosen,
                                                          size_t depth, Plans plans, int64_t each,
                                                          double& score) {
  const auto admits = [&](Plans some) {
    return AdmitsBound(list, depth, predictor_.Bound(tree_.run(), chosen, RangeOf(some)),
                       each * std::ssize(some), score);
  };
  if (!admits(plans)) return std::nullopt;
  const size_t too_large = plans.size() == 1 ? 0 : TooLarge(chosen, plans);
  if (too_large == 0) return plans;
  const Plans left = plans.subspan(too_large);
  if (admits(left)) return left;
  cuts_.counts.cut_by_memory += each * static_cast<int64_t>(too_large);
  return std::nullopt;
}

bool BranchWorker::AdmitsBound(const LayoutList& list, size_t depth, const StepBound& bound,
                               int64_t candidates, double& score) {
  const RunConfig& run = tree_.run();
  const auto tokens = static_cast<double>(run.global_batch * run.sequence_length);
  score = std::max(score,
                   Score(list.objective(), run, tokens / bound.step_time_s, bound.peak_mem_bytes));
  if (!Fits(run, bound.peak_mem_bytes)) {
    cuts_.counts.cut_by_memory += candidates;
    return false;
  }
  if (const TrainingRequirement* unmet = Unmet(run, tokens / bound.step_time_s)) {
    cuts_.by_requirement[unmet->id()] += candidates;
    return false;
  }
  if (list.MayTake(run, depth, score)) return true;
  CutByBound(candidates, score);
  return false;
}

size_t BranchWorker::TooLarge(LayoutPart chosen, Plans plans) {
  const RunConfig& run = tree_.run();
  const auto one_may_fit = [&](size_t count) {
    const PlanRange range = RangeOf(plans.first(count));
    return Fits(run, predictor_.Bound(run, chosen, range).peak_mem_bytes);
  };
  if (!limited_ || run.memory_per_rank_bytes == 0 || one_may_fit(1)) return 0;
  // With all of them, one may: that is known.
  size_t too_large = 1;
  size_t enough = plans.size();
  while (enough - too_large > 1) {
    const size_t count = too_large + (enough - too_large) / 2;
    (one_may_fit(count) ? enough : too_large) = count;
  }
  return too_large;
}

bool BranchWorker::MayTake(const LayoutList& list, size_t depth, double score) {
  if (list.MayTake(tree_.run(), depth, score)) return true;
  CutByBound(tree_.CountBelow(depth), score);
  return false;
}

void BranchWorker::CutByBound(int64_t candidates, double score) {
  cuts_.counts.cut_by_bound += candidates;
  cuts_.least_score = std::min(cuts_.least_score, score);
}

bool BranchWorker::Fits(const RunConfig& run, int64_t bytes) const {
  return !limited_ || run.memory_per_rank_bytes == 0 || bytes <= run.memory_per_rank_bytes;
}

const TrainingRequirement* BranchWorker::Unmet(const RunConfig& run, double tokens_per_s) const {
  return limited_ ? speed_.FirstUnmet(run.layout.world_size(), tokens_per_s) : nullptr;
}

void BranchWorker::LookCloser(const LayoutList& list, const Branch& branch, Harvest& harvest) {
  if (tree_.run().layout.schedule != Schedule::kZeroBubble) return Visit(list, branch, harvest);
  Branch closer = branch;
  ++closer.level;
  if (Admits(list, closer)) harvest.branches.push_back(closer);
}

void BranchWorker::Divide(const LayoutList& list, const Branch& branch, Harvest& harvest) {
  const uint32_t level = branch.level + 1;
  size_t within = 0;
  const auto enters = [&](size_t depth, const RunConfig&) {
    if (depth < depths_[level]) return true;
    const SpacePlace place = PlaceBelow(branch.place, branch.level, within++);
    if (tree_.CountBelow(depth) == 0) return false;  // narrowings leave nothing
    double score = branch.score;
    if (Admits(list, kLevels[level].chosen, depth, score)) {
      harvest.branches.push_back({score, place, branch.family, level, tree_.choice()});
    }
    return false;
  };
  tree_.Walk(depths_[branch.level], enters, [](const RunConfig&) {});
}

void BranchWorker::Visit(const LayoutList& list, const Branch& branch, Harvest& harvest) {
  size_t within = 0;
  const size_t last = tree_.depth() - 1;
  const auto enters = [&](size_t depth, const RunConfig& run) {
    if (depth < last) return true;
    const Plans plans = tree_.PlansBelow();
    Family family = {.plans = plans, .place = PlaceBelow(branch.place, branch.level, within)};
    within += plans.size();
    VisitFamily(list, family);
    if (family.best &&
        (list.MayTake(run, tree_.depth(), family.key.first) || list.Misses(family.best->run))) {
      harvest.candidates.push_back(std::move(*family.best));
    }
    return false;
  };
  tree_.Walk(depths_[branch.level], enters, [](const RunConfig&) {});
}

void BranchWorker::VisitFamily(const LayoutList& list, Family& family) {
  if (family.plans.empty()) return;
  double score = 0;
  const auto left = Admitted(list, LayoutPart::kSharding, tree_.depth(), family.plans, 1, score);
  if (!left) return;
  cuts_.counts.cut_by_memory += std::ssize(family.plans) - std::ssize(*left);
  VisitPlans(list, *left, family);
}

void BranchWorker::VisitPlans(const LayoutList& list, Plans plans, Family& family) {
  double score = 0;
  for (const LayoutPart chosen :
       {LayoutPart::kSharding, LayoutPart::kFirstWaits, LayoutPart::kWaits, LayoutPart::kWhole}) {
    if (chosen == LayoutPart::kWhole && plans.size() > 1) break;
    const StepBound bound = predictor_.Bound(tree_.run(), chosen, RangeOf(plans));
    if (!AdmitsBound(list, tree_.depth(), bound, std::ssize(plans), score)) return;
  }
  if (family.best && score > family.ToBeat(list.objective())) {
    return CutByBound(std::ssize(plans), score);
  }
  if (plans.size() == 1) return VisitOne(list, plans.front(), family);
  // First what may be better: the rest need not be looked at then.
  const size_t lighter = LighterPart(plans);
  const Plans parts[] = {plans.first(lighter), plans.subspan(lighter)};
  const bool leanest_first = list.objective() == Objective::kMemory;
  VisitPlans(list, parts[leanest_first ? 1 : 0], family);
  VisitPlans(list, parts[leanest_first ? 0 : 1], family);
}

void BranchWorker::VisitOne(const LayoutList& list, const RecomputeConfig& plan, Family& family) {
  RunConfig run = tree_.run();
  run.layout.recompute = plan;
  Prediction prediction = predictor_.ClosedForm(run);
  if (const TrainingRequirement* unmet = Unmet(run, prediction.tokens_per_s)) {
    ++cuts_.by_requirement[unmet->id()];
    return;
  }
  ++cuts_.counts.visited;
  if (!Fits(run, prediction.peak_mem_bytes)) return;
  ++cuts_.counts.fitting;
  SpacePlace place = family.place;
  place.path.back() += static_cast<uint32_t>(&plan - family.plans.data());
  const SortKey key = PredictionKey(list.objective(), run, prediction);
  const double to_beat = family.best ? family.ToBeat(list.objective()) : key.first;
  if (key.first > to_beat) return;
  if (family.best && key.first == to_beat && place > family.best->place) return;
  family.best = {place, std::move(run), std::move(prediction)};
  family.key = key;
}

}  // namespace trimtab

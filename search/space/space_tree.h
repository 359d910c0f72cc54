// SpaceTree: the product of the dimensions as a tree. A level binds one row; leaves are candidates.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include <unordered_map>
#include <utility>
#include <vector>

#include "search/space/space_rows.h"
#include "search/space/stack_rules.h"

namespace trimtab {

/// What all candidates of a problem share: its root.
RunConfig RootOf(const Problem& problem);

/// What `row` has bound, as a layout prints it.
std::string ValueInWords(const SpaceRow& row, const RunConfig& run);

/// The values that rows have bound, in the order of the rows: little enough to keep many.
struct Choice {
  static constexpr size_t kMostRows = 24;
  static constexpr int32_t kNone = -1;  // not bound yet, or the row does not apply

  std::array<int32_t, kMostRows> values;

  Choice() { values.fill(kNone); }
  bool operator==(const Choice&) const = default;
  struct Hash {
    size_t operator()(const Choice& choice) const;
  };
};

/// A place in the tree, from where it is walked. Not thread-safe: one per thread. The problem must
/// outlive it.
class SpaceTree {
 public:
  /// At the root: nothing is bound.
  explicit SpaceTree(const Problem& problem);

  size_t depth() const { return rows_.size(); }

  /// What is bound, and the run that it makes.
  const Choice& choice() const { return choice_; }
  const RunConfig& run() const { return run_; }
  /// Goes to where `choice` was bound.
  void Bind(const Choice& choice);

  /// Walks all that is below this place, where the rows above `depth` are bound, depth first and in
  /// a fixed order. Calls `enters(depth, run)` whenever a row was bound and broke no rule that it
  /// settles: where that is false, what is below is left out. Whether any rule is broken is known
  /// before the last row is bound, but for those that it settles. Calls `leaf(run)` for every
  /// candidate that breaks none. Both are called where they were bound; in the end this is where it
  /// was.
  template <typename Enters, typename Leaf>
  void Walk(size_t depth, const Enters& enters, const Leaf& leaf);

  /// Candidates below this place, where the rows above `depth` are bound, whatever rules they
  /// break. Remembered: rows that no other looks at make no difference to it.
  int64_t CountBelow(size_t depth);

  /// The plans of recomputation below this place, of one family and in its order; those of a longer
  /// pipeline are some of them. The rows down to RecomputeRow are bound. Holds until the next call.
  const std::vector<RecomputeConfig>& PlansBelow() { return PlansHere().plans; }

  /// The values that each row has anywhere in the space, in the order in which they are met, in
  /// words.
  std::vector<std::vector<std::string>> ValuesByRow();

  /// Candidates that a walk left out, by the rule that they break.
  std::map<const Rule*, int64_t> TakePruned() { return std::exchange(pruned_, {}); }

 private:
  /// What rows bind of a run.
  struct Bound {
    ParallelConfig layout{};
    int64_t global_batch = 0;
    int64_t threads_per_rank = 0;
    int64_t memory_per_rank_bytes = 0;
  };
  Bound CurrentlyBound() const;
  void Restore(const Bound& bound);

  /// Calls `each` for every value of row `depth` that this version runs, with the value bound.
  template <typename Each>
  void ForEachValue(size_t depth, const Each& each);

  /// Whether narrowings of what row `depth` binds leave the run in the space.
  bool Allows(size_t depth) const;
  /// CountBelow; where no row from `depth` on is looked at by the last one, as if that had one
  /// value.
  int64_t Count(size_t depth);
  /// False where nothing is below.
  bool CollectValues(size_t depth, std::vector<std::vector<std::string>>& values);

  const Problem& problem_;
  const std::vector<SpaceRow>& rows_ = SpaceRows();
  RunConfig run_;
  Choice choice_;
  std::vector<std::vector<int64_t>> values_;       // of each row, as far as it is bound
  std::vector<std::vector<const Rule*>> settled_;  // by each row
  std::vector<const Rule*> unsupported_;
  std::vector<std::vector<const Narrowing*>> narrowings_;  // by row
  StackRules stack_rules_;
  std::map<const Rule*, int64_t> pruned_;
  size_t apart_ = 0;                  // depth below all that the last row looks at
  std::vector<size_t> unread_below_;  // by row: from this depth on no row looks at its value
  // By depth: Count below what rows that others look at have bound.
  std::vector<std::unordered_map<Choice, int64_t, Choice::Hash>> counts_;
  /// By what the last row looks at: its values.
  struct Plans {
    std::vector<RecomputeConfig> plans;
    int64_t lacking = 0;  // others, which the stack does not have
    const Rule* rule = nullptr;
    bool collected = false;
  };
  Plans& PlansHere();
  /// Counts the plans of recomputation below this place that the stack does not have.
  void CountLackingPlans();
  std::map<std::pair<RecomputeKind, int64_t>, Plans> plans_;
};

/// In the order of the rules, then those of the stack.
PrunedCounts ByRule(const std::map<const Rule*, int64_t>& pruned);

/// The first of `rules` that `run` breaks, or nullptr.
const Rule* FirstBroken(const std::vector<const Rule*>& rules, const RunConfig& run);

template <typename Each>
void SpaceTree::ForEachValue(size_t depth, const Each& each) {
  const SpaceRow& row = rows_[depth];
  if (!row.applies(problem_, run_)) {
    if (Allows(depth)) each();
    return;
  }
  std::vector<int64_t>& values = values_[depth];
  values.clear();
  row.values(problem_, run_, values);
  const Bound before = CurrentlyBound();
  for (const int64_t value : values) {
    row.bind(problem_, value, run_);
    choice_.values[depth] = static_cast<int32_t>(value);
    if (FirstBroken(unsupported_, run_) == nullptr && Allows(depth)) each();
    Restore(before);
  }
  choice_.values[depth] = Choice::kNone;
}

template <typename Enters, typename Leaf>
void SpaceTree::Walk(size_t depth, const Enters& enters, const Leaf& leaf) {
  if (depth == rows_.size()) return leaf(run());
  ForEachValue(depth, [&] {
    const bool all = depth + 2 == rows_.size();
    const Rule* broken = all ? FirstBrokenRule(run_) : FirstBroken(settled_[depth], run_);
    if (broken == nullptr) {
      broken = stack_rules_.Broken(depth, run_.layout);
      if (broken != nullptr && depth + 1 == rows_.size()) return;  // counted by the row above
      if (broken == nullptr && all) CountLackingPlans();
    }
    if (broken != nullptr) {
      pruned_[broken] += CountBelow(depth + 1);
    } else if (enters(depth + 1, run())) {
      Walk(depth + 1, enters, leaf);
    }
  });
}

}  // namespace trimtab

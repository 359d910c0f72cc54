// SpaceTree: the product of the dimensions as a tree. A level binds one row; leaves are candidates.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "search/space_rows.h"

namespace trimtab {

/// What all candidates of a problem share: its root.
RunConfig RootOf(const Problem& problem);

/// What `row` has bound, as a layout prints it.
std::string ValueInWords(const SpaceRow& row, const RunConfig& run);

/// What the rows bind of a run.
struct Choice {
  ParallelConfig layout{};
  int64_t global_batch = 0;
  int64_t threads_per_rank = 0;
  int64_t memory_per_rank_bytes = 0;
};
Choice ChoiceOf(const RunConfig& run);
void Bind(const Choice& choice, RunConfig& run);

/// Not thread-safe: one per thread. The problem must outlive it.
class SpaceTree {
 public:
  explicit SpaceTree(const Problem& problem);

  size_t depth() const { return rows_.size(); }
  /// Depth below the row called `name`, which there is.
  size_t DepthBelow(const char* name) const;

  /// Walks all that is below `run`, in which the rows above `depth` are bound, depth first and in a
  /// fixed order. Calls `enters(depth, run)` whenever a row was bound and broke no rule that it
  /// settles: where that is false, what is below is left out. Calls `leaf(run)` for every candidate
  /// that breaks no rule. `run` is bound on the way, and as it was in the end.
  template <typename Enters, typename Leaf>
  void Walk(size_t depth, RunConfig& run, const Enters& enters, const Leaf& leaf);

  /// Candidates below `run`, whatever rules they break.
  int64_t CountBelow(size_t depth, RunConfig& run);

  /// The values that each row has anywhere in the space, in the order in which they are met, in
  /// words.
  std::vector<std::vector<std::string>> ValuesByRow();

  /// Candidates that a walk left out, by the rule that they break.
  std::map<const Rule*, int64_t> TakePruned() { return std::exchange(pruned_, {}); }

 private:
  /// Calls `each` for every value of row `depth` that this version runs, with the value bound.
  template <typename Each>
  void ForEachValue(size_t depth, RunConfig& run, const Each& each);

  /// Whether narrowings of what row `depth` binds leave `run` in the space.
  bool Allows(size_t depth, const RunConfig& run) const;
  /// False where nothing is below.
  bool CollectValues(size_t depth, RunConfig& run, std::vector<std::vector<std::string>>& values);

  const Problem& problem_;
  const std::vector<SpaceRow>& rows_ = SpaceRows();
  std::vector<std::vector<int64_t>> values_;       // of each row, as far as it is bound
  std::vector<std::vector<const Rule*>> settled_;  // by each row
  std::vector<const Rule*> unsupported_;
  std::vector<std::vector<const Narrowing*>> narrowings_;  // by row
  std::map<const Rule*, int64_t> pruned_;
};

/// In the order of the rules.
PrunedCounts ByRule(const std::map<const Rule*, int64_t>& pruned);

/// The first of `rules` that `run` breaks, or nullptr.
const Rule* FirstBroken(const std::vector<const Rule*>& rules, const RunConfig& run);

template <typename Each>
void SpaceTree::ForEachValue(size_t depth, RunConfig& run, const Each& each) {
  const SpaceRow& row = rows_[depth];
  if (!row.applies(problem_, run)) {
    if (Allows(depth, run)) each();
    return;
  }
  std::vector<int64_t>& values = values_[depth];
  values.clear();
  row.values(problem_, run, values);
  const Choice before = ChoiceOf(run);
  for (const int64_t value : values) {
    row.bind(problem_, value, run);
    if (FirstBroken(unsupported_, run) == nullptr && Allows(depth, run)) each();
    Bind(before, run);
  }
}

template <typename Enters, typename Leaf>
void SpaceTree::Walk(size_t depth, RunConfig& run, const Enters& enters, const Leaf& leaf) {
  if (depth == rows_.size()) {
    if (const Rule* broken = FirstBrokenRule(run)) {
      ++pruned_[broken];
    } else {
      leaf(run);
    }
    return;
  }
  ForEachValue(depth, run, [&] {
    if (const Rule* broken = FirstBroken(settled_[depth], run)) {
      pruned_[broken] += CountBelow(depth + 1, run);
    } else if (enters(depth + 1, run)) {
      Walk(depth + 1, run, enters, leaf);
    }
  });
}

}  // namespace trimtab

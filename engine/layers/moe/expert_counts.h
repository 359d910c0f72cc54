// How many rows each rank of a group has for each expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/moe/permute.h"

namespace trimtab {

/// A large group has many ranks with the same rows, where nobody looks at the tokens: these are
/// kept once.
class ExpertCounts {
 public:
  /// Of `experts` experts, and no rank yet.
  explicit ExpertCounts(int64_t experts) : experts_(experts) {}
  /// `rows` [ranks, E], each rank's own.
  ExpertCounts(int64_t experts, const std::vector<int64_t>& rows);

  /// Adds a rank with rows of its own [E], and returns what AddLike takes for others like it.
  size_t Add(const std::vector<int64_t>& rows);
  void AddLike(size_t kind);

  int64_t experts() const { return experts_; }
  /// The rows of a rank, by its place in the group, for each of all experts.
  std::span<const int64_t> of(int rank) const;
  /// The same for `experts` of them, added up.
  int64_t Count(int rank, const ExpertRange& experts) const;
  /// Of each of `experts` what all ranks have.
  std::vector<int64_t> SumOverRanks(const ExpertRange& experts) const;

 private:
  int64_t experts_;                   // E
  std::vector<int64_t> rows_;         // [kinds, E]
  std::vector<size_t> kind_of_;       // by rank
  std::vector<int64_t> ranks_alike_;  // by kind
};

}  // namespace trimtab

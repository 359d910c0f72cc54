// LayoutList: what a walk over the space keeps of the candidates it looks at.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "search/space/objective.h"

namespace trimtab {

/// A place in the order of the space: the position of each branch on the way within the one above
/// it, from the root down.
struct SpacePlace {
  static constexpr size_t kLevels = 6;

  std::array<uint32_t, kLevels> path{};

  auto operator<=>(const SpacePlace&) const = default;
};

/// One that stays.
struct Shortlisted {
  SpacePlace place{};
  RunConfig run;
  Prediction prediction;
};

class LayoutList {
 public:
  virtual ~LayoutList() = default;
  /// What candidates are ranked by.
  virtual Objective objective() const = 0;
  /// Whether one may stay that agrees with `run` in the first `bound` rows of the space, and
  /// whose score is at least `score`.
  virtual bool MayTake(const RunConfig& run, size_t bound, double score) const = 0;
  /// Takes candidates in any order; no place comes twice.
  virtual void Offer(const SpacePlace& place, const RunConfig& run,
                     const Prediction& prediction) = 0;
  /// Whether this run, which fits, is still to be offered, whatever its score.
  virtual bool Misses(const RunConfig& /*run*/) const { return false; }
  /// Returns what stays, by place, and empties the list.
  virtual std::vector<std::shared_ptr<const Shortlisted>> Take() = 0;
};

}  // namespace trimtab

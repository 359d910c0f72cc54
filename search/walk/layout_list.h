// LayoutList: what a walk over the space keeps of the candidates it looks at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "search/race/strategy.h"

namespace trimtab {

/// One that stays.
struct Shortlisted {
  int64_t number = 0;  // its place in the order of the space
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
  /// In any order; no number comes twice.
  virtual void Offer(int64_t number, const RunConfig& run, const Prediction& prediction) = 0;
  /// Whether this run, which fits, is still to be offered, whatever its score.
  virtual bool Misses(const RunConfig& /*run*/) const { return false; }
  /// What stays, by number. Empties the list.
  virtual std::vector<std::shared_ptr<const Shortlisted>> Take() = 0;
};

}  // namespace trimtab

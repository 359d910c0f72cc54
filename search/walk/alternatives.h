// Alternatives: of each dimension of the space, the best layout that chooses otherwise than the
// best one does. They say what a choice is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "search/space/space_rows.h"
#include "search/study/study.h"
#include "search/walk/layout_list.h"

namespace trimtab {

/// Keeps, of each dimension that `best` has, the best layout with another value.
class Alternatives final : public LayoutList {
 public:
  /// How much worse than `best` one may be and still stay: half as bad again. Of a dimension that
  /// is bound late, a tenth: all that may become of other branches is looked at before its best is
  /// known, which takes longer the further off that is.
  static constexpr double kFarthest = 1.5;
  static constexpr double kFarthestLate = 1.1;
  static double Farthest(size_t row);

  Alternatives(const Problem& problem, Objective objective, const Shortlisted& best);

  /// All that come before this place in the order of keys and places were offered: what is known
  /// of them is no longer looked for. Returns whether something still is.
  bool Settle(const SortKey& key, const SpacePlace& place);

  Objective objective() const override { return objective_; }
  bool MayTake(const RunConfig& run, size_t bound, double score) const override;
  void Offer(const SpacePlace& place, const RunConfig& run, const Prediction& prediction) override;
  /// Each once.
  std::vector<std::shared_ptr<const Shortlisted>> Take() override;

 private:
  /// A dimension, and the best that differs in it.
  struct Slot {
    const SpaceRow* row = nullptr;
    size_t number = 0;  // of the row
    double score = 0;   // none worse stays
    SortKey key{};
    std::shared_ptr<const Shortlisted> candidate = nullptr;
    bool settled = false;  // no other can be better
  };

  Objective objective_;
  RunConfig best_;
  std::vector<Slot> slots_;
};

/// What one choice of the recommended layout is worth.
struct Explanation {
  std::string dimension;
  std::string chosen;     // its value, as a layout prints it
  std::string value;      // the best other one
  size_t other = 0;       // the best candidate with it
  double extra_cost = 0;  // how much worse its score is, as predicted: 0.03 = 3 %
};

/// Of each dimension that `chosen`, one of `candidates`, has: the best closed form among candidates
/// that fit with another value of it, where there is one near enough that is not better. The
/// dearest first. Rows look at the model, the cluster and the sizes of `problem`.
std::vector<Explanation> Explain(const Problem& problem, Objective objective,
                                 const std::vector<CandidateRecord>& candidates, size_t chosen);

}  // namespace trimtab

// Which candidates a race visits next, and in which order.
//
// Each round makes the visits that take most off what the recommended one may lose (race_belief.h)
// for the time they cost.
#pragma once

#include <optional>
#include <vector>

#include "search/race/race.h"

namespace trimtab {

/// What a race does next: visits a candidate in the open round, begins a round, or ends.
struct RaceStep {
  std::optional<size_t> visit;
  std::vector<size_t> begin_round;  // the order of its visits
  RaceEnd end = RaceEnd::kOpen;
  /// None is left to visit but candidates whose failures may be the environment's (retry.h).
  bool unexplained = false;
};

/// `race` as judged from `candidates`, which have ApplyRace applied since; `rounds` in order.
RaceStep NextStep(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates,
                  const std::vector<RoundRecord>& rounds);

}  // namespace trimtab

// PlainPolicy: a race without a belief, to compare the real one with.
//
// Rounds of paired visits: each round visits all that may still win once. A candidate is dropped
// once the interval of the fit separates it from the best. Places that are free go to the next by
// prediction, as long as its prediction's interval reaches below the best measured step.
#pragma once

#include <cstdint>
#include <limits>

#include "tests/search/fake_machine.h"

namespace trimtab {

class PlainPolicy : public RacePolicy {
 public:
  /// No more than `most_entrants` candidates are ever visited.
  explicit PlainPolicy(int64_t most_entrants = std::numeric_limits<int64_t>::max())
      : most_entrants_(most_entrants) {}

  Race Judge(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
             const std::map<Mode, ProbeReference>& references) const override;
  RaceStep Next(const RaceRules& rules, const Race& race,
                const std::vector<CandidateRecord>& candidates,
                const std::vector<RoundRecord>& rounds) const override;

 private:
  int64_t most_entrants_;
};

}  // namespace trimtab

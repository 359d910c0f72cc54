// A search's result in words, for people.
#pragma once

#include <string>

#include "search/driver.h"

namespace trimtab {

/// What was pruned by which rule, the first `top` rows of the ranking, and the recommendation.
std::string SearchText(const SearchResult& result, int64_t top, bool bold);

/// One line about a visit that ended, and about a round.
std::string VisitText(const CandidateRecord& candidate, const TrialOutcome& outcome,
                      const RaceProgress& progress);
std::string RoundText(const RoundRecord& round, const RaceProgress& progress);

}  // namespace trimtab

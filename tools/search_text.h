// A search's result in words, for people.
#pragma once

#include <string>

#include "search/driver.h"

namespace trimtab {

/// What was pruned by which rule, the first `top` rows of the ranking, and the recommendation.
std::string SearchText(const SearchResult& result, int64_t top, bool bold);

/// One line about a trial that ended.
std::string TrialText(const CandidateRecord& candidate, const TrialOutcome& outcome,
                      const TrialProgress& progress);

}  // namespace trimtab

// What a search for serving prints for people.
#pragma once

#include <cstdint>
#include <string>

#include "search/search_result.h"

namespace trimtab {

/// The first `top` rows of the ranking: each as measured, or else as predicted, and below that what
/// was measured beside its prediction.
std::string ServingRankingText(const SearchResult& result, int64_t top, bool bold);

}  // namespace trimtab

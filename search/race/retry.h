// Retry: which trials that failed are tried again, and how.
#pragma once

#include <vector>

#include "search/study/study.h"

namespace trimtab {

/// A trial whose node or job went away says nothing of its candidate: so often it is tried again.
inline constexpr int64_t kMostLosses = 5;

/// The candidate's trials fail, and no other is started. A crash and a time-out are tried once
/// more; out of memory, figures that are no numbers and a failure that explains itself are believed
/// at once, and so is the sixth trial that is lost.
bool HasFailed(const CandidateRecord& candidate);

/// What a visit's time limit is multiplied by: twice after a time-out.
double TimeLimitFactor(const CandidateRecord& candidate);

/// Candidates that need at least as much memory as one that did not get it. `why` names that one
/// and both figures.
struct Hopeless {
  size_t index = 0;
  std::string why;
};
std::vector<Hopeless> FindHopeless(const std::vector<CandidateRecord>& candidates);

}  // namespace trimtab

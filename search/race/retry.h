// Retry: which trials that failed are tried again, and how.
#pragma once

#include <vector>

#include "search/study/study.h"

namespace trimtab {

/// A trial whose node or job went away says nothing of its candidate: so often it is tried again.
inline constexpr int64_t kMostLosses = 5;

/// The candidate's trials fail, and no other is started. A crash and a time-out are tried once
/// more; out of memory, figures that are no numbers and a failure that explains itself are believed
/// at once, and so is the sixth trial in a row that loses its nodes. Only failures of its own
/// count: see IsSuspect.
bool HasFailed(const CandidateRecord& candidate);

/// The candidate's last trials failed, or lost their nodes, in a way that may be the environment's:
/// until another candidate has run, neither is to blame.
bool IsSuspect(const CandidateRecord& candidate);

/// True if the environment is to blame for what failed last: a candidate that ran before fails too,
/// beside another.
bool EnvironmentFails(const std::vector<CandidateRecord>& candidates);

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

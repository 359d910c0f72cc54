#include "search/study/study_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// True for a trial that ended without a measurement, other than by the user or a kill.
bool SaysSomething(const AttemptRecord& attempt) {
  return attempt.state && *attempt.state != TrialState::kDone &&
         *attempt.state != TrialState::kCancelled && *attempt.state != TrialState::kInterrupted;
}

bool TookNodes(TrialState state) {
  return state == TrialState::kLost || state == TrialState::kPreempted;
}

/// True for a failure that may be the environment's: where another candidate ran afterwards, it
/// was not.
bool MayBeEnvironment(TrialState state) {
  return state == TrialState::kCrashed || state == TrialState::kTimedOut ||
         state == TrialState::kFailed;
}

/// Counts one attempt. `another_ran`: a trial ran after it; `own_ran`: one of its candidate.
void Count(const AttemptRecord& attempt, bool another_ran, bool own_ran, TrialTally& tally) {
  const TrialState state = *attempt.state;
  if (TookNodes(state)) {
    ++tally.losses;
    if (state == TrialState::kLost && !own_ran) {
      ++(another_ran ? tally.own_losses : tally.open_losses);
    }
  } else {
    ++(MayBeEnvironment(state) && !another_ran ? tally.suspects : tally.failures);
  }
  // A failure says more than a loss, whichever was later.
  const bool failed_before = tally.last_state && !TookNodes(*tally.last_state);
  if (TookNodes(state) && failed_before) return;
  tally.last_state = state;
  tally.last_message = attempt.message;
}

}  // namespace

CandidateRecord* StudyState::FindCandidate(int64_t id) {
  const auto at = std::lower_bound(
      candidates.begin(), candidates.end(), id,
      [](const CandidateRecord& candidate, int64_t wanted) { return candidate.id < wanted; });
  return at != candidates.end() && at->id == id ? &*at : nullptr;
}

AttemptRecord* StudyState::FindAttempt(std::string_view token) {
  // The latest are asked for most.
  const auto at = std::find_if(attempts.rbegin(), attempts.rend(),
                               [&](const AttemptRecord& each) { return each.token == token; });
  return at != attempts.rend() ? &*at : nullptr;
}

int64_t StudyState::LastDone() const {
  const auto at = std::find_if(attempts.rbegin(), attempts.rend(), [](const AttemptRecord& each) {
    return each.state == TrialState::kDone;
  });
  return at != attempts.rend() ? at->id : 0;
}

std::vector<const AttemptRecord*> StudyState::Suspects() const {
  std::vector<const AttemptRecord*> suspects;
  for (auto i = static_cast<size_t>(LastDone()); i < attempts.size(); ++i) {
    const auto& state = attempts[i].state;
    if (state && (MayBeEnvironment(*state) || *state == TrialState::kLost)) {
      suspects.push_back(&attempts[i]);
    }
  }
  return suspects;
}

void StudyState::Apply(std::vector<AttemptEnd> ends) {
  for (AttemptEnd& end : ends) {
    AttemptRecord& attempt = AttemptOf(end.attempt);
    attempt.state = end.state;
    attempt.message = std::move(end.message);
    if (!end.measurement) continue;
    std::vector<VisitRecord>& visits = FindCandidate(attempt.candidate)->visits;
    const auto later = std::find_if(visits.begin(), visits.end(), [&](const VisitRecord& visit) {
      return visit.attempt > attempt.id;
    });
    visits.insert(later, {.round = attempt.round,
                          .at_s = end.at_s,
                          .measurement = std::move(*end.measurement),
                          .attempt = attempt.id});
  }
  CountTrials();
}

void StudyState::CountTrials() {
  const int64_t last_done = LastDone();
  std::map<int64_t, int64_t> last_done_of;  // by candidate
  for (const AttemptRecord& attempt : attempts) {
    if (attempt.state == TrialState::kDone) last_done_of[attempt.candidate] = attempt.id;
  }
  for (CandidateRecord& candidate : candidates) static_cast<TrialTally&>(candidate) = {};
  for (const AttemptRecord& attempt : attempts) {
    if (!SaysSomething(attempt)) continue;
    Count(attempt, last_done > attempt.id, last_done_of[attempt.candidate] > attempt.id,
          *FindCandidate(attempt.candidate));
  }
}

}  // namespace trimtab

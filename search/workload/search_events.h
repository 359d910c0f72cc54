// What a search tells while it runs, and what it asks.
#pragma once

#include <cstdint>
#include <string>

#include "search/study/study.h"
#include "search/walk/walkers.h"
#include "search/workload/space_summary.h"

namespace trimtab {

struct RaceProgress {
  int64_t round = 0;
  int64_t visits = 0;  // that ended, of all rounds
  int64_t racing = 0;  // candidates not told apart from the best yet, with the best itself
  int64_t failed = 0;  // candidates
  double elapsed_s = 0;
  double speed = 0;  // of the machine in the last round; 0 = not known
  double best_tokens_per_s = 0;
  std::string best_layout;
};

enum class StopRequest { kNone, kDrain, kCancel };

/// What a search tells, and what it asks, while it runs. All calls come from the thread that called
/// RunSearch.
class SearchEvents {
 public:
  virtual ~SearchEvents() = default;
  virtual void OnResume(int64_t /*measured*/, int64_t /*ingested*/) {}
  /// The walk over the space goes on; told after each of its rounds.
  virtual void OnWalk(const WalkProgress& /*progress*/) {}
  virtual void OnSpace(const SpaceSummary& /*summary*/) {}
  /// `total`: as far as is known; what these show may call for more.
  virtual void OnDryRun(int64_t /*done*/, int64_t /*total*/) {}
  virtual void OnDryRunsEnd(int64_t /*done*/) {}
  virtual void OnVisitStart(const CandidateRecord& /*candidate*/,
                            const RaceProgress& /*progress*/) {}
  virtual void OnVisitEnd(const CandidateRecord& /*candidate*/, const TrialOutcome& /*outcome*/,
                          const RaceProgress& /*progress*/) {}
  virtual void OnRoundEnd(const RoundRecord& /*round*/, const RaceProgress& /*progress*/) {}
  /// The race has stopped: of its seconds, those in which trials ran, and the driver's own.
  virtual void OnRaceEnd(double /*trials_s*/, double /*own_s*/) {}
  /// Polled often. kDrain: the running trial ends, no other starts. kCancel: it is killed.
  virtual StopRequest stop_requested() { return StopRequest::kNone; }
};

}  // namespace trimtab

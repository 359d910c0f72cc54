// What a search shows while it runs, and how Ctrl-C reaches it.
#pragma once

#include <chrono>
#include <string>

#include "search/workload/search_events.h"
#include "tools/cli/progress.h"

namespace trimtab {

class SearchProgress : public SearchEvents {
 public:
  /// `caveat`: why predictions are rough; empty if they are not.
  SearchProgress(const OutputOptions& output, std::string caveat);

  void OnResume(int64_t measured, int64_t ingested) override;
  void OnWalk(const WalkProgress& walk) override;
  void OnSpace(const SpaceSummary& summary) override;
  void OnDryRun(int64_t done, int64_t total) override;
  void OnDryRunsEnd(int64_t done) override;
  void OnVisitStart(const CandidateRecord& candidate, const RaceProgress& race) override;
  void OnVisitEnd(const CandidateRecord& candidate, const TrialOutcome& outcome,
                  const RaceProgress& race) override;
  void OnRoundEnd(const RoundRecord& round, const RaceProgress& race) override;
  void OnRaceEnd(double trials_s, double own_s) override;
  StopRequest stop_requested() override;
  void Clear() { progress_.Clear(); }

 private:
  using Clock = std::chrono::steady_clock;

  /// A race has no total: it takes as many rounds as telling the candidates apart does.
  void Show(const RaceProgress& race);

  Progress progress_;
  std::string caveat_;
  RaceProgress last_;
  Clock::time_point last_walk_ = Clock::now();
};

}  // namespace trimtab

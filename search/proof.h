// Proof: the race of a search carried out. Visits run as trials, and each is in the study before
// the next begins.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "profiler/quiet_wait.h"
#include "profiler/trial.h"
#include "search/race/race.h"
#include "search/search_options.h"
#include "search/study/study.h"
#include "search/workload/workload.h"

namespace trimtab {

class Proof {
 public:
  using Clock = std::chrono::steady_clock;

  /// Of the candidates in `study`, by a search that began at `start`. Keeps references to all of
  /// these.
  Proof(const Workload& workload, const SearchOptions& options, Clock::time_point start,
        Study& study, TrialRunner& runner, SearchEvents& events);

  /// Takes the steps of the race until it ends. Returns why it stopped before that; empty when it
  /// did not.
  std::string Run();

 private:
  std::string TakeSteps();
  void Judge();
  /// A trial that ran out of memory says the same of every candidate that needs as much.
  void PruneHopeless();
  void BeginRound(const std::vector<size_t>& order);
  /// Notes the speed of rounds that are over, unless the last is `open`.
  void FinishRounds(bool open);
  void Visit(size_t index, int64_t round);
  /// Ends the search: what failed last failed because of the environment, and is tried again when
  /// it goes on. Throws EnvironmentError.
  [[noreturn]] void BlameEnvironment();
  /// Has later visits avoid hosts whose ranks were slow in the last one.
  void NoteStragglers(const CandidateRecord& candidate);
  /// Trials, or their ends, were waited for since then.
  void NoteTrials(Clock::time_point since);
  RaceProgress Progress() const;
  /// That ended, of all rounds, well or not.
  int64_t Visits() const;
  double elapsed_s() const;

  const Workload& workload_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  Study& study_;
  TrialRunner& runner_;
  SearchEvents& events_;
  const std::map<Mode, ProbeReference> references_;
  const std::vector<Residual> seed_;
  double trials_s_ = 0;      // spent waiting for trials
  double rank_seconds_ = 0;  // that visits had: their ranks times their wall time
  bool disturbed_ = false;   // other programs were running when the last visit ended
  QuietWait quiet_wait_ = QuietWait::OnThisMachine(CoresOfThisMachine());
  std::vector<CandidateRecord> candidates_;
  Race race_;
};

}  // namespace trimtab

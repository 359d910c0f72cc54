// Driver: the search from problem to recommendation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "search/race.h"
#include "search/recommend.h"
#include "search/study.h"

namespace trimtab {

struct SearchOptions {
  Problem problem;
  int64_t dry_run_count = 32;       // candidates that get a dry run
  RaceRules race;                   // prove_count 0 = predictions only
  double budget_s = 0;              // no further visit starts after this long; 0 = no limit
  double trial_time_limit_s = 300;  // a visit is killed after this long
  MeasureOptions visit = QuickVisit();
  std::shared_ptr<Launcher> launcher = MakeLauncher("inproc", {});  // of a trial's ranks
  std::string study_path;
  StudyOptions study;

  /// What a runner is asked for a visit of `run`.
  TrialRequest RequestFor(const RunConfig& run, const std::string& token) const;
  /// A few steps: what a race repeats as often as it needs.
  static MeasureOptions QuickVisit();
};

/// Candidates counted by what happened to them. `pruned` has a row per rule that pruned anything,
/// in the order of the rules, and "memory" last.
struct SpaceSummary {
  int64_t enumerated = 0;
  int64_t feasible = 0;
  std::vector<std::pair<std::string, int64_t>> pruned;
};

struct RaceProgress {
  int64_t round = 0;
  int64_t visits = 0;  // done, of all rounds
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
  virtual void OnSpace(const SpaceSummary& /*summary*/) {}
  virtual void OnDryRun(int64_t /*done*/, int64_t /*total*/) {}
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

struct SearchResult {
  std::string study_path;
  RaceRules rules;
  SpaceSummary space;
  std::vector<CandidateRecord> candidates;
  Race race;
  std::vector<RoundRecord> rounds;
  std::vector<RankingRow> ranking;  // of those in the running
  Recommendation recommendation;
  std::vector<NumericsRow> numerics;
  Accuracy accuracy;
  std::string problem;       // JSON text, as ToJson(const Problem&)
  std::string profile_name;  // of the hardware profile that priced the predictions
  std::string profile_measured_on;
  std::vector<std::pair<std::string, std::string>> versions;  // component, version
  bool partial = false;        // the race is open: a budget, a stop request or the rounds ended it
  std::string partial_reason;  // one line; empty when whole

  const RankingRow& recommended() const { return ranking.at(recommendation.row); }
  const CandidateRecord& recommended_candidate() const {
    return candidates.at(recommended().candidate);
  }
};

/// Enumerates, prunes, predicts, proves and recommends; everything is in the study when it returns
/// or throws. With study.resume, goes on where an earlier search of the same problem stopped.
/// Throws InfeasibleError (nothing fits: lists what pruned everything; or every trial failed),
/// UsageError, InputError, StorageError as Study::Open does.
SearchResult RunSearch(const SearchOptions& options, Predictor& predictor, TrialRunner& runner,
                       SearchEvents& events);

/// With the cost model and child processes of this program. Throws EnvironmentError, before it
/// touches the study, when trials are asked for that this machine cannot run.
SearchResult RunSearch(const SearchOptions& options, SearchEvents& events);

/// What the launcher would be asked for the best candidates that a search without trials found.
std::vector<LaunchPlan> PlanTrials(const SearchOptions& options, const SearchResult& ranked);

/// The result as the study has it, without running anything. Throws InfeasibleError when the study
/// holds no candidate that runs.
SearchResult ResultFromStudy(const Study& study);

}  // namespace trimtab

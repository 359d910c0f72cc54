// Driver: the search from problem to recommendation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "search/recommend.h"
#include "search/study.h"

namespace trimtab {

struct SearchOptions {
  Problem problem;
  Objective objective = Objective::kThroughput;
  int64_t dry_run_count = 32;       // candidates that get a dry run
  int64_t prove_count = 4;          // candidates that get measured; 0 = predictions only
  double budget_s = 0;              // no further trial starts after this long; 0 = no limit
  double trial_time_limit_s = 300;  // a trial is killed after this long
  MeasureOptions measure;
  Launcher launcher = Launcher::kInproc;  // of a trial's ranks
  std::string study_path;
  StudyOptions study;
};

/// Candidates counted by what happened to them. `pruned` has a row per rule that pruned anything,
/// in the order of the rules, and "memory" last.
struct SpaceSummary {
  int64_t enumerated = 0;
  int64_t feasible = 0;
  std::vector<std::pair<std::string, int64_t>> pruned;
};

struct TrialProgress {
  int64_t done = 0;
  int64_t failed = 0;
  int64_t running = 0;  // 0 or 1
  int64_t total = 0;    // that this search proves
  double elapsed_s = 0;
  double eta_s = -1;  // from the mean trial so far; -1 = not known yet
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
  virtual void OnTrialStart(const CandidateRecord& /*candidate*/,
                            const TrialProgress& /*progress*/) {}
  virtual void OnTrialEnd(const CandidateRecord& /*candidate*/, const TrialOutcome& /*outcome*/,
                          const TrialProgress& /*progress*/) {}
  /// Polled often. kDrain: the running trial ends, no other starts. kCancel: it is killed.
  virtual StopRequest stop_requested() { return StopRequest::kNone; }
};

struct SearchResult {
  std::string study_path;
  Objective objective = Objective::kThroughput;
  SpaceSummary space;
  std::vector<CandidateRecord> candidates;
  std::vector<RankingRow> ranking;  // of those in the running
  Recommendation recommendation;
  std::vector<NumericsRow> numerics;
  Accuracy accuracy;
  int64_t to_prove = 0;      // candidates this search meant to prove
  std::string problem;       // JSON text, as ToJson(const Problem&)
  std::string profile_name;  // of the hardware profile that priced the predictions
  std::string profile_measured_on;
  std::vector<std::pair<std::string, std::string>> versions;  // component, version
  bool partial = false;        // budget or a stop request ended it before all were proved
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

/// The result as the study has it, without running anything. Throws InfeasibleError when the study
/// holds no candidate that runs.
SearchResult ResultFromStudy(const Study& study);

}  // namespace trimtab

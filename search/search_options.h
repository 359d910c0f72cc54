// What a search is asked, and how.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "profiler/trial.h"
#include "search/race/race.h"
#include "search/study/study.h"

namespace trimtab {

struct SearchOptions {
  int64_t dry_run_count = 32;       // candidates that get a dry run
  RaceRules race;                   // prove_count 0 = predictions only
  int64_t most_visits = 0;          // no further one starts after so many; 0 = no limit
  double budget_s = 0;              // no further visit starts after this long; 0 = no limit
  double gpu_minutes = 0;           // or once visits have had so many minutes of ranks; likewise
  double trial_time_limit_s = 300;  // a visit is killed after this long
  MeasureOptions visit = QuickVisit();
  std::shared_ptr<Launcher> launcher = MakeLauncher("inproc", {});  // of a trial's ranks
  std::string study_path;
  StudyOptions study;
  int threads = 0;  // of the walk over the space; 0 = one for each core

  /// Makes the request for a visit on `cluster`.
  TrialRequest RequestFor(TrialJob job, const Cluster& cluster, const std::string& token) const;
  /// A few steps: what a race repeats as often as it needs.
  static MeasureOptions QuickVisit();
};

}  // namespace trimtab

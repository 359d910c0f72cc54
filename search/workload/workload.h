// Workload: what a search chooses among, what its candidates are predicted to do, and how one is
// measured. Everything else (walk limits, study, race, launchers, budgets, report) is written once,
// for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "profiler/trial.h"
#include "search/race/strategy.h"
#include "search/study/study.h"
#include "search/walk/walkers.h"
#include "search/workload/search_events.h"

namespace trimtab {

/// How a search predicts more closely.
struct CloserLook {
  Objective objective = Objective::kThroughput;
  int64_t count = 0;  // candidates at least; 0 = none
  int threads = 1;
};

class Workload {
 public:
  virtual ~Workload() = default;

  /// What identifies a study, and what prices its predictions.
  virtual StudyProblem Identity() const = 0;
  virtual const Cluster& cluster() const = 0;
  /// Prices candidates by `profile` from now on: a study keeps the prices it began with.
  virtual void PriceBy(const HardwareProfile& profile) = 0;
  /// Measures what predictions need and `study` does not have yet.
  virtual void Calibrate(Study& /*study*/) {}

  /// Walks the space. Stores in `study`, at once, the candidates that may be looked at closely, and
  /// how many others each rule removed. Throws UsageError if the space is empty, WalkStopped if it
  /// was stopped before a candidate was found.
  virtual void StoreSpace(Objective objective, const Walkers& walkers, Study& study) = 0;
  /// Says what would have to change for anything to fit; empty if nothing is known.
  virtual std::string Relaxations(const Walkers& /*walkers*/) { return ""; }
  /// Predicts the best stored candidates more closely.
  virtual void LookCloser(const CloserLook& /*look*/, Study& /*study*/, SearchEvents& /*events*/) {}

  /// Derives from what a study holds what candidates are compared by: the seconds that `objective`
  /// counts, and how far each misses what is required.
  virtual void Judge(Objective /*objective*/, std::vector<CandidateRecord>& /*candidates*/) const {}
  /// What a visit to the candidate runs.
  virtual TrialJob JobOf(const CandidateRecord& candidate, const MeasureOptions& visit) const = 0;
};

}  // namespace trimtab

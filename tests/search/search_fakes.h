// Stand-ins for the cost model and for trials, so that searches can be tested without either.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "profiler/trial.h"
#include "search/driver.h"
#include "search/space/predictor.h"

namespace trimtab {

/// A fresh path in the test's scratch folder.
std::string ScratchPath(const std::string& name);

/// A tiny model on a cpu of two cores, up to four ranks: a space of a few dozen layouts.
Problem TinyProblem();

/// Every legal candidate of `problem`, in the order of the walk.
std::vector<RunConfig> LegalCandidates(const Problem& problem);

/// A search for training.
struct TrainingSearch : SearchOptions {
  Problem problem;
};
SearchResult RunSearch(const TrainingSearch& search, Predictor& predictor, TrialRunner& runner,
                       SearchEvents& events);

/// Searches TinyProblem, and proves three candidates.
TrainingSearch TinySearch(const std::string& study_path);

/// The run that a trial of training measures.
RunConfig RunOfTrial(const TrialRequest& request);

/// Deterministic figures: more micro batch is faster, recompute slower but smaller.
class FakePredictor : public Predictor {
 public:
  Prediction ClosedForm(const RunConfig& run) override;
  Prediction DryRun(const RunConfig& run) override;

  int64_t closed_forms = 0;
  int64_t dry_runs = 0;
};

Measurement FakeMeasurement(const RunConfig& run);

/// Does what a trial's child does to the results file, without a child.
class FakeRunner : public TrialRunner {
 public:
  TrialOutcome Run(const TrialRequest& request, const std::function<bool()>& cancelled) override;

  void Release(const std::string& key) override { released.insert(key); }
  void NoteSlow(const std::string& host) override { ++slow_hosts[host]; }

  /// By layout: how its first trials end, when not well. What is not listed succeeds.
  std::map<std::string, std::vector<TrialState>> failures;
  std::map<std::string, int64_t> runs;  // finished trials by layout
  std::set<std::string> released;
  std::map<std::string, int64_t> slow_hosts;  // how often each was noted
  /// By layout: its first trial has a rank that is 3 times as slow as the others, on this host.
  std::map<std::string, std::string> stragglers;
  double noise = 0;            // of a visit's figures, relative
  std::string slow_layout;     // takes twice as long
  double step_s = 0;           // of every layout; 0 = FakeMeasurement's
  double slowness = 1;         // what every layout takes, of that
  std::function<void()> tick;  // called at every moment at which a driver might be killed

 private:
  std::mt19937_64 random_;
};

}  // namespace trimtab

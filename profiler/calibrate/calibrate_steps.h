// Calibration of whole steps: what they take beyond the sum of their ops.
//
// Layouts of different modes are compared by their step factors, so these are measured as a search
// measures layouts: reference runs of every mode are visited in turns, round after round, and a
// race's fit takes off what the machine did meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "engine/config/run/run_config.h"
#include "profiler/calibrate/calibrate_plan.h"
#include "profiler/drift.h"
#include "profiler/race_fit.h"

namespace trimtab {

/// The runs that a mode's step factor is taken from: models of GPT-2's shape of two sizes, with all
/// ranks in one tensor-parallel group, with all in one data-parallel group, and as a pipeline of
/// two stages. Each step has several micro batches.
std::vector<RunConfig> ReferenceRuns(const Mode& mode);

class ReferenceRace {
 public:
  explicit ReferenceRace(const std::vector<Mode>& modes);

  /// The reference runs of all modes.
  const std::vector<RunConfig>& runs() const { return runs_; }

  /// Visits every run once, in an order drawn from `random`. Returns the probe of each mode
  /// meanwhile.
  std::vector<ProbeReading> Round(const CalibrationPlan& plan, std::mt19937_64& random);
  /// What a visit to `runs()[visit.entrant]` was.
  void Add(const RaceVisit& visit) { visits_.push_back(visit); }

  /// How far off the step factors may be by what the visits scatter: the relative standard error of
  /// a mode's typical run, by mode. Every run was
  /// visited.
  std::vector<double> Spreads(const std::map<Mode, ProbeReference>& references) const;

  /// Fills step factors and their spread in the tables of `profile`, whose modes are those given,
  /// in that order, and have all else. Every run was visited.
  void FillStepFactors(HardwareProfile& profile) const;

 private:
  RaceFit Fit(const std::map<Mode, ProbeReference>& references) const;
  std::vector<double> SpreadsOf(const RaceFit& fit) const;

  std::vector<Mode> modes_;
  std::vector<RunConfig> runs_;
  std::vector<size_t> mode_of_run_;
  std::vector<RaceVisit> visits_;
  int64_t rounds_ = 0;
};

}  // namespace trimtab

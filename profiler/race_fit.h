// Race fit: what the visits of a race say about its entrants, on a machine whose speed wanders.
//
// Every visit is a few blocks of steps with the probe's readings around them. Blocks that other
// programs disturbed are left out where others are left, and count little else. Logarithms turn
// speeds into sums: a block takes (its layout) + (the machine at that moment). The fit first takes
// off what the probe saw, by as much as steps have been seen to follow the probe; then it takes off
// what the visits of one round share; what is left of each entrant are its own seconds, and the
// scatter says how sure they are.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "profiler/drift.h"
#include "profiler/measure.h"

namespace trimtab {

struct RaceVisit {
  size_t entrant = 0;
  int64_t round = 0;
  Mode mode{};
  std::vector<StepBlock> blocks{};  // at least one
  double straggling = 1;            // how many times as slow as the others its slowest rank was
};

/// The mode a run's ranks are in. All GPUs are one mode.
Mode ModeOf(const RunConfig& run);

/// One visit to `run` as the fit takes it: its blocks of steps, or where it has none its step time.
RaceVisit RaceVisitOf(size_t entrant, int64_t round, const RunConfig& run,
                      const Measurement& measurement);

/// What the probe takes at the speed that `profile` is of, by mode; empty where it does not say.
std::map<Mode, ProbeReference> ProbeReferences(const HardwareProfile& profile);

/// The machine's speed against its calibration, or where there is none against this race's median.
struct RaceSpeed {
  double median = 1;
  double low = 1;
  double high = 1;
};

class RaceFit {
 public:
  /// Fits all `visits` of `entrants` layouts; intervals hold with `confidence` (0..1).
  RaceFit(const std::vector<RaceVisit>& visits, size_t entrants,
          const std::map<Mode, ProbeReference>& references, double confidence);

  struct Estimate {
    double log = 0;         // natural logarithm
    double half_width = 0;  // of the interval, in the same unit
    double low() const { return log - half_width; }
    double high() const { return log + half_width; }
  };

  bool visited(size_t entrant) const { return count_.at(entrant) > 0; }
  int64_t visits(size_t entrant) const { return count_.at(entrant); }
  /// Seconds of a step of the entrant at the machine's calibrated speed. It must have been visited.
  Estimate StepTime(size_t entrant) const;
  /// Of the logarithms of two entrants' step times, which must have been visited. As if normal: as
  /// much wider as Student's distribution is than that at the fit's confidence.
  double Covariance(size_t entrant, size_t other) const;

  /// Half-width of an interval, at the fit's confidence, over the standard deviation of what is
  /// normal.
  double normal_quantile() const { return normal_quantile_; }

  /// What one visit's figure scatters by, relative, once the machine's speed is taken off.
  double scatter() const { return scatter_; }
  /// What the visits of one round share beyond that, relative.
  double round_scatter() const { return round_scatter_; }

  const std::map<int64_t, RaceSpeed>& speed_of_round() const { return speed_of_round_; }
  const RaceSpeed& speed() const { return speed_; }
  /// Of each visit, in the order given.
  const std::vector<double>& speed_of_visit() const { return speed_of_visit_; }
  /// Whether the machine's speed is known of every visit.
  bool probed() const { return probed_; }
  /// Whether speeds are against a calibration.
  bool calibrated() const { return calibrated_; }

  /// By how much steps follow the probe: 1 = a machine at half its speed takes twice as long.
  double exponent() const { return exponent_; }
  /// False where the machine's speed wandered and the steps did not go with the probe.
  bool stands_for_steps() const { return stands_for_steps_; }
  /// Modes that ran at another speed beside the others than their calibration explains.
  const std::vector<Mode>& throttled() const { return throttled_; }

 private:
  struct Reading;  // one visit, in logarithms

  void CompareModes(std::vector<Reading>& readings,
                    const std::map<Mode, ProbeReference>& references);
  void TakeOffNoise(std::vector<Reading>& readings);
  void FindExponent(const std::vector<Reading>& readings);
  void FitLevels(const std::vector<Reading>& readings);
  void SummariseSpeed(const std::vector<Reading>& readings);

  double confidence_;
  std::vector<int64_t> count_;  // visits, by entrant
  std::vector<size_t> mode_;    // by entrant: index into modes_
  std::vector<Mode> modes_;     // that were visited
  std::vector<std::vector<double>> mode_covariance_;
  std::vector<double> corrected_;  // by entrant: what share of its visits' slowness was taken off
  std::vector<double> level_;      // log seconds at calibrated speed, by entrant
  std::vector<std::vector<double>> covariance_;  // of the levels, without what modes add
  double scatter_ = 0;
  double round_scatter_ = 0;
  double wander_ = 0;    // of the machine's slowness from visit to visit, a standard deviation
  double quantile_ = 0;  // half-width / standard error
  double normal_quantile_ = 0;
  std::map<int64_t, RaceSpeed> speed_of_round_;
  std::vector<double> speed_of_visit_;
  RaceSpeed speed_;
  double exponent_ = 1;
  bool probed_ = true;
  bool calibrated_ = true;
  bool stands_for_steps_ = true;
  std::vector<Mode> throttled_;
};

}  // namespace trimtab

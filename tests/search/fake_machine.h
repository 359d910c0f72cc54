// A machine whose speed follows a trace, and races on it in virtual time.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "search/race/race.h"
#include "search/race/race_round.h"

namespace trimtab {

/// Speed by second, 1 = calibrated. Beyond its end it begins again.
using SpeedTrace = std::vector<double>;

/// Kinds of trace that MakeTrace knows.
inline const std::vector<std::string> kTraceKinds = {"quiet",  "walk",  "steps",
                                                     "bursts", "mixed", "throttled"};
/// `seconds` of it, drawn with `seed`:
/// quiet      1.0
/// walk       wanders between 0.35 and 1.0 within minutes
/// steps      jumps to another speed every half a minute or so
/// bursts     1.0, and a third of that for some seconds now and then
/// mixed      a walk with bursts
/// throttled  as quiet: what is throttled is one mode (FakeMachine)
SpeedTrace MakeTrace(const std::string& kind, int seconds, uint64_t seed);

/// Both columns of a recorded trace (second,core0,core1), their smaller one: all ranks wait for the
/// slowest.
SpeedTrace ReadSpeedTrace(const std::string& path);

struct FakeMachineOptions {
  SpeedTrace trace;
  uint64_t seed = 1;
  double step_noise = 0.004;  // relative standard deviations
  double visit_noise = 0;     // of a whole visit, which the probe does not see
  double probe_noise = 0.02;  // of one reading
  double outlier_share = 0;  // of visits that take half as long again, which the probe does not see
  double model_error = 0.03;   // of predictions, per candidate
  double mode_error = 0;       // what those of a mode share
  double value_error = 0;      // what those with the same value of a dimension share
  double reference_error = 0;  // of the probe's references between modes
  int64_t rare_layouts = 0;    // one in so many of those that are not of the plainest kinds
  bool throttled = false;      // one mode runs at half its speed for half of the time
};

/// A machine of a kind of trace, whose modes' references are off by 1.5 %. Kinds beyond
/// MakeTrace's:
/// loaded     quiet, but each visit scatters by 5 to 10 %, by seed: somebody else's work runs too
/// outliers   quiet, but one visit in ten takes half as long again
/// mispriced  quiet, with visits that scatter by 3 %; predictions are off by what all of a mode,
/// and
///            all with one value of a dimension, have in common
FakeMachineOptions MakeMachine(const std::string& kind, uint64_t seed);

/// How a race on the machine is judged and goes on: as a driver's does.
class RacePolicy {
 public:
  virtual ~RacePolicy() = default;
  virtual Race Judge(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
                     const std::map<Mode, ProbeReference>& references) const;
  virtual RaceStep Next(const RaceRules& rules, const Race& race,
                        const std::vector<CandidateRecord>& candidates,
                        const std::vector<RoundRecord>& rounds) const;
};

/// One race over the layouts of a tiny problem, as a driver would run it.
class FakeMachine {
 public:
  explicit FakeMachine(const FakeMachineOptions& options);

  struct Outcome {
    Race race;
    double regret = 0;          // of the recommended against the true best: 0.01 = 1 % slower
    double seconds = 0;         // all visits took, of virtual time
    double single_seconds = 0;  // that single visits of the first candidates would have taken
    int64_t rounds = 0;
    int64_t visits = 0;
    int64_t intervals = 0;        // of visited candidates against the recommended
    int64_t intervals_right = 0;  // that hold the truth
  };
  /// Ends before its end once `most_visits` were made: a budget.
  Outcome Run(const RaceRules& rules, int64_t most_visits = 1000, const RacePolicy& policy = {});

  /// For tests that set the truth themselves.
  std::vector<CandidateRecord>& candidates() { return candidates_; }
  void SetTrueStep(size_t candidate, double seconds) { true_step_s_.at(candidate) = seconds; }
  double true_step_s(size_t candidate) const { return true_step_s_.at(candidate); }

 private:
  double Noise(double deviation);
  /// Makes predictions err together: by mode, and by value of each dimension.
  void Misprice();
  /// Passes the time that `work_s` takes at full speed; how long that was.
  double Work(double work_s, const Mode& mode);
  double Speed(const Mode& mode) const;
  Measurement Visit(size_t candidate);

  FakeMachineOptions options_;
  std::mt19937_64 random_;
  std::vector<CandidateRecord> candidates_;
  std::vector<double> true_step_s_;
  std::map<Mode, double> true_probe_s_;
  std::map<Mode, ProbeReference> references_;
  Mode throttled_mode_{};
  double now_s_ = 0;
};

}  // namespace trimtab

// Records of a study: its candidates, their visits and the rounds of a race.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/infer/serving_config.h"
#include "profiler/race_fit.h"
#include "profiler/trial.h"
#include "search/space/predictor.h"

namespace trimtab {

/// One finished visit of a race.
struct VisitRecord {
  int64_t round = 0;
  double at_s = 0;  // when it ended, since the study was made
  Measurement measurement{};
  int64_t attempt = 0;  // its number in the study
};

/// One round of a race. `speed` is the machine's against its calibration, or against the race's
/// median without one; known once all its visits are done.
struct RoundRecord {
  int64_t id = 0;                     // from 1
  std::vector<int64_t> candidates{};  // ids, in the order of their visits
  double at_s = 0;                    // when it began, since the study was made
  double seconds = 0;                 // it took so far; 0 = not known
  std::optional<RaceSpeed> speed{};
};

/// A candidate as a study stores it.
struct StoredCandidate {
  int64_t id = 0;  // 0 until stored
  std::string key;
  RunConfig run;                         // of a service: its ranks (RunOfService)
  std::optional<ServingConfig> serving;  // what is served, if that is what the search is for
  std::string pruned_by;                 // a rule's id, or "memory"; empty = in the running
  std::string pruned_why;
  std::optional<Prediction> closed_form;  // of a service: its simulation
  std::optional<Prediction> dry_run;
  std::vector<VisitRecord> visits;

  /// The best prediction there is: of the dry run, else the closed form. nullptr = none.
  const Prediction* stored_prediction() const {
    return dry_run ? &*dry_run : closed_form ? &*closed_form : nullptr;
  }
};

/// Counts of the trials of a candidate that gave no measurement, over all attempts of the study.
struct TrialTally {
  int64_t failures = 0;     // trials that failed by themselves: for want of memory, with figures
                            // that are no numbers, or before another trial ran
  int64_t suspects = 0;     // trials that failed, and none has run since
  int64_t losses = 0;       // trials whose nodes went away, or were given to others
  int64_t own_losses = 0;   // nodes that went away since it ran, before another trial ran
  int64_t open_losses = 0;  // likewise, and no trial has run since
  std::optional<TrialState> last_state{};  // of the last that failed, or else was lost
  std::string last_message{};
};

/// A race's judgement of a candidate (race.h), computed anew from all visits and never stored.
struct Judgement {
  double strain = 0;                    // how far it misses what is required: 0 = not
  std::optional<Measurement> measured;  // what all its visits say together
  double measured_half_width = 0;       // of the interval of its step time, relative; 0 = not known
  std::optional<Prediction> corrected;  // the prediction, scaled by what others measured
};

/// A candidate and all that is known about it.
struct CandidateRecord : StoredCandidate, TrialTally, Judgement {
  /// The best prediction there is, with what measurements of others say about it. nullptr = none.
  const Prediction* prediction() const { return corrected ? &*corrected : stored_prediction(); }
};

/// Says how a trial failed: "out_of_memory: 9 GiB asked for".
inline std::string FailureText(TrialState state, const std::string& message) {
  const std::string name(Name(state));
  return message.empty() || message == name ? name : name + ": " + message;
}

/// The report of a service: as measured, or else as predicted.
inline const LoadReport& ReportOf(const CandidateRecord& candidate) {
  return candidate.measured ? *candidate.measured->service
                            : candidate.prediction()->service->report;
}

}  // namespace trimtab

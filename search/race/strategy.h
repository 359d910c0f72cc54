// Strategy: what is best, and which candidates to look at more closely.
//
// Three tiers, each cheaper than the next and each asked only about the best of the one before:
// every legal candidate gets a closed form, the best `dry_run_count` a dry run, as does what would
// be chosen without one, and the best of those race each other (race.h).
#pragma once

#include <cstdint>
#include <vector>

#include "search/space/objective.h"
#include "search/study/study.h"

namespace trimtab {

/// How fast a candidate is: a step of training, or of a service, whose step is what its objective
/// counts, one output token or answer.
struct StepSpeed {
  double step_time_s = 0;
  double tokens_per_s = 0;
};
/// The figure to minimise, of a candidate with these figures; far worse for one that misses what is
/// required.
double Score(Objective objective, const CandidateRecord& candidate, StepSpeed speed,
             int64_t peak_mem_bytes);

/// Indices of the candidates in the running, best first by their best prediction. Ties go to the
/// shorter step, then to the order of the space. A failed trial does not move a candidate.
std::vector<size_t> RankByPrediction(Objective objective,
                                     const std::vector<CandidateRecord>& candidates);

/// Indices of the measured candidates, best first by what was measured.
std::vector<size_t> RankByMeasurement(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

/// Indices of the candidates that still need a dry run, best first: of the `count` best by closed
/// form, those that have none.
std::vector<size_t> ChooseDryRuns(Objective objective,
                                  const std::vector<CandidateRecord>& candidates, int64_t count);

/// Indices of candidates without a dry run that a report would choose all the same, because dry
/// runs turned out slower than closed forms: of those that rank before the first one with a dry
/// run, the next few, among all, on each number of GPUs and of each precision and optimizer state.
/// None once every such choice has a dry run.
std::vector<size_t> ChooseMoreDryRuns(Objective objective,
                                      const std::vector<CandidateRecord>& candidates);

}  // namespace trimtab

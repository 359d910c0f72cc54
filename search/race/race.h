// Race: who leads by the visits so far, and whether that is enough.
//
// Candidates are visited in rounds (race_round.h), a few steps a visit, so that those of a round
// see the same machine and the fit (profiler/race_fit.h) can tell them apart however its speed
// wanders. The race ends when the best is surely good, or little is left to lose (race_belief.h).
// All of this follows from what a study holds: a search that was killed goes on with the very step
// it would have taken.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/race_fit.h"
#include "search/race/race_belief.h"
#include "search/race/strategy.h"

namespace trimtab {

struct RaceRules {
  Objective objective = Objective::kThroughput;
  int64_t prove_count = 4;     // the best by prediction, which are visited in any case
  double indifference = 0.01;  // a difference of less than this does not matter
  double confidence = 0.95;    // of intervals, and that none is better than the best by more
  int64_t most_rounds = 40;

  /// The chance left that another is better by more than the indifference, at which a race ends.
  double allowed_doubt() const { return 1 - confidence; }
  double log_indifference() const { return std::log1p(indifference); }
};

/// Where a candidate stands.
enum class Standing {
  kPredicted,  // not visited
  kFailed,     // its trial fails
  kRacing,     // may still be better than the best by more than the indifference
  kBehind,     // behind the best by more than the indifference
  kTied,       // within the indifference of the best, as far as can be told
  kBest,
};
std::string Name(Standing standing);

enum class RaceEnd {
  kNotRun,     // nothing was visited
  kOpen,       // more visits would tell more
  kSeparated,  // the best is ahead of all others
  kTie,        // so it is, but for some within the indifference
  kSmallLoss,  // some may still be better, but too little is expected of that for further visits
  kRounds,     // the rounds are used up
};
std::string Name(RaceEnd end);

/// What the visits so far say. Indices are of the candidates it was judged from.
struct Race {
  /// Which entrant of the fit a candidate is.
  std::vector<std::optional<size_t>> entrant;
  std::optional<RaceFit> fit;  // none before the first visit
  /// Which contestant of the belief a candidate is: none that fails, or that prediction puts far
  /// behind.
  std::vector<std::optional<size_t>> contestant;
  std::optional<RaceBelief> belief;  // none before the first visit
  std::optional<size_t> best;
  std::vector<Standing> standing;
  RaceEnd end = RaceEnd::kNotRun;
  /// By how much the best is expected to be worse than what truly is the best: 0.01 = 1 %. None
  /// where that is not known: of a best that was visited too seldom for its scatter to show, or
  /// where the visits scatter so much that it could be twice as slow.
  std::optional<double> expected_loss{};

  /// The score of a contestant against the best one's, as visits and predictions together say, in
  /// logarithms: 0.01 = 1 % worse.
  RaceFit::Estimate AgainstBest(const RaceRules& rules,
                                const std::vector<CandidateRecord>& candidates,
                                size_t candidate) const;
  /// Compares an entrant by its visits alone: the ratio of the figures that a ranking shows.
  RaceFit::Estimate MeasuredAgainstBest(const RaceRules& rules,
                                        const std::vector<CandidateRecord>& candidates,
                                        size_t candidate) const;
  /// Of a race that has a best: whether it may have been lucky.
  bool BestIsUnproved(const RaceRules& rules) const;
  std::vector<size_t> With(Standing standing) const;
};

/// Judges the visits of `candidates`. The best is the one expected to be; of those that surely no
/// other is better than by more than the indifference, the one that needs the least memory, then
/// the one with the shortest layout. `references`: what the probe should take, by mode; may be
/// empty.
Race JudgeRace(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
               const std::map<Mode, ProbeReference>& references);

/// Gives every visited candidate its figures: `measured` at the machine's calibrated speed, with an
/// interval, and corrects the predictions of the others by them, or by `seed` (correct.h).
void ApplyRace(const Race& race, const std::vector<Residual>& seed,
               std::vector<CandidateRecord>& candidates);

/// Whether so little is expected to be lost (RaceBelief::Loss) that one is content with it.
bool LosesLittle(const RaceRules& rules, double loss);

/// Predictions of one mode and numerics share most of their errors.
using PredictionGroup = std::pair<Mode, std::string>;
PredictionGroup GroupOf(const CandidateRecord& candidate);

}  // namespace trimtab

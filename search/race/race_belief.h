// Race belief: what predictions and visits say together about the candidates of a race.
//
// A prediction is off by something that its group shares (a mode in one precision), by something
// that all with the same value of a dimension share (a micro batch, a schedule), and by an error of
// its own; how large these usually are is learnt from the visited ones. Visits say what a candidate
// really takes, up to the scatter of the fit (race_fit.h). Everything is normal, so that one mean
// and one covariance of all candidates, visited or not, hold what is known: on a steady machine
// visits decide, on a noisy one they move the predictions of everyone alike. The covariance also
// says beforehand what a visit would tell.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "profiler/race_fit.h"

namespace trimtab {

/// One candidate. Logarithms are natural, and smaller is better.
struct Contestant {
  double predicted = 0;              // log of the score
  double group_error = 0;            // standard deviation of what its group's predictions share
  size_t group = 0;                  // from 0
  std::vector<size_t> values{};      // of each dimension, numbered from 0
  std::optional<double> measured{};  // log of the score
  size_t entrant = 0;                // of the fit, where measured
};

class RaceBelief {
 public:
  /// `fit` is of the visits that measured the measured ones. All have as many dimensions.
  RaceBelief(const std::vector<Contestant>& contestants, const RaceFit& fit);

  size_t size() const { return mean_.size(); }
  double mean(size_t contestant) const { return mean_[contestant]; }
  /// Standard deviation of the score of `contestant` against that of `other`.
  double Deviation(size_t contestant, size_t other) const;
  /// The chance that `contestant` is better than `other` by more than `margin`.
  double Chance(size_t contestant, size_t other, double margin) const;
  /// The sum of that over all: at least the chance that anyone is.
  double Doubt(size_t other, double margin) const;

  /// By how much `other` is expected to be worse than the best of all, in logarithms: 0 where it is
  /// surely the best. The maximum of normal variables, one taken in after the other as if what came
  /// of the former were normal (C. E. Clark, The Greatest of a Finite Set of Random Variables,
  /// Operations Research 9, 1961).
  double Loss(size_t other) const;

  /// Plans a round: the visits planned from here on share what the machine does in it.
  void BeginRound();
  /// Plans a visit. How much surer it makes is known before what it says: the covariance changes,
  /// the means do not.
  void Visit(size_t contestant);
  /// Loss(other) expected after one more visit to each of `visited`, one at a time, if nothing else
  /// is recommended then.
  std::vector<double> LossesAfter(const std::vector<size_t>& visited, size_t other) const;
  /// Of the contestants but `other`, the `most` that add most to its loss, each by itself.
  std::vector<size_t> Rivals(size_t other, size_t most) const;

 private:
  /// What a visit that is planned takes off: of the covariance of i and j as much as the product of
  /// theirs. The last one is the round's.
  using Lowering = std::vector<double>;

  /// Of two contestants, as visits that were carried out leave it.
  double Known(size_t i, size_t j) const;
  /// Also after the planned ones; for the round too, which comes behind the contestants.
  double Covariance(size_t i, size_t j) const;
  Lowering LoweredBy(size_t contestant) const;

  /// By how much one is worse than each of its rivals: those who add something to its loss.
  struct Behind {
    std::vector<size_t> rivals;
    std::vector<double> mean;        // by rival
    std::vector<double> covariance;  // [rivals, rivals], of which only b >= a is there
  };
  Behind BehindRivals(size_t other) const;
  /// The loss of one that is so far behind, after a visit by which the covariance of rivals a and b
  /// is less by `lowered[a] * lowered[b]`.
  static double LossOf(const Behind& behind, const std::vector<double>& lowered);

  std::vector<double> mean_;
  // [contestants, contestants], of which only j >= i is there. Shared with copies, which plan.
  std::shared_ptr<const std::vector<double>> known_;
  std::vector<Lowering> planned_;
  double visit_variance_ = 0;
  double round_variance_ = 0;
  bool plans_round_ = false;
};

}  // namespace trimtab

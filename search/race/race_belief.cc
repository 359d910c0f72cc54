#include "search/race/race_belief.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "profiler/matrix.h"

namespace trimtab {
namespace {

// What predictions are expected to be off by before any was measured (standard deviations): each
// for itself, and together with all that have the same value of a dimension; and how many measured
// ones, or values of a dimension, that is worth.
constexpr double kOwnError = 0.03;
constexpr double kOwnErrorWeight = 4;
constexpr double kSharedError = 0.005;
constexpr double kSharedErrorWeight = 1;
constexpr int kIterations = 20;
// So many deviations: what is left of a normal variable above them is 5e-15 of one.
constexpr double kNeverAboveZero = 8;
// A contestant of which less is expected adds nothing to a loss.
constexpr double kNoLoss = 1e-7;

/// The chance that a normal variable of this mean and deviation is below 0.
double ChanceBelowZero(double mean, double deviation) {
  if (deviation == 0) return mean < 0 ? 1 : 0;
  return std::erfc(mean / deviation / std::numbers::sqrt2) / 2;
}

double DeviationOf(double variance) { return std::sqrt(std::max(0.0, variance)); }

double Density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }

/// The mean of what is above 0 of a normal variable of this mean and deviation.
double MeanAboveZero(double mean, double deviation) {
  if (deviation == 0) return std::max(mean, 0.0);
  if (mean < -kNeverAboveZero * deviation) return 0;
  return mean * ChanceBelowZero(-mean, deviation) + deviation * Density(mean / deviation);
}

/// What predictions are off by: by group, by value of each dimension, and each for itself. The last
/// two are learnt by expectation maximisation: how far off everything is given what it usually is
/// off by, then the other way round.
class PredictionErrors {
 public:
  explicit PredictionErrors(const std::vector<Contestant>& contestants)
      : contestants_(contestants) {
    if (contestants.empty()) return;
    shared_.assign(contestants.front().values.size(), kSharedError * kSharedError);
    values_.resize(shared_.size());
    for (const Contestant& each : contestants) {
      for (size_t d = 0; d < shared_.size(); ++d) values_[d].push_back(each.values[d]);
    }
  }

  /// Covariance of the errors of two predictions.
  double Covariance(size_t i, size_t j) const {
    const Contestant& a = contestants_[i];
    const Contestant& b = contestants_[j];
    double sum = a.group == b.group ? a.group_error * b.group_error : 0;
    for (size_t dimension = 0; dimension < shared_.size(); ++dimension) {
      if (a.values[dimension] == b.values[dimension]) sum += shared_[dimension];
    }
    return sum + (i == j ? own_ : 0);
  }

  /// The same of i and each from i on, side by side.
  std::vector<double> CovariancesFrom(size_t i) const {
    const size_t n = contestants_.size();
    const Contestant& mine = contestants_[i];
    std::vector<double> row(n - i);
    for (size_t j = i; j < n; ++j) {
      const Contestant& other = contestants_[j];
      if (mine.group == other.group) row[j - i] = mine.group_error * other.group_error;
    }
    for (size_t dimension = 0; dimension < shared_.size(); ++dimension) {
      const size_t* values = values_[dimension].data();
      for (size_t j = i; j < n; ++j) {
        row[j - i] += values[j] == values[i] ? shared_[dimension] : 0.0;
      }
    }
    row.front() += own_;
    return row;
  }

  /// `weight` is the inverse covariance of what was `measured`; `pull` that times how far it is
  /// off.
  void Learn(const std::vector<size_t>& measured, const Matrix& weight,
             const std::vector<double>& pull) {
    for (size_t dimension = 0; dimension < shared_.size(); ++dimension) {
      std::map<size_t, std::vector<size_t>> members;  // of `measured`, by value
      for (size_t a = 0; a < measured.size(); ++a) {
        members[contestants_[measured[a]].values[dimension]].push_back(a);
      }
      double square = kSharedErrorWeight * kSharedError * kSharedError;
      for (const auto& [value, alike] : members) {
        square += Square(shared_[dimension], alike, weight, pull);
      }
      shared_[dimension] = square / (kSharedErrorWeight + static_cast<double>(members.size()));
    }
    double square = kOwnErrorWeight * kOwnError * kOwnError;
    for (size_t a = 0; a < measured.size(); ++a) square += Square(own_, {a}, weight, pull);
    own_ = square / (kOwnErrorWeight + static_cast<double>(measured.size()));
  }

 private:
  /// The square expected of an error of `variance` that `alike` share.
  static double Square(double variance, const std::vector<size_t>& alike, const Matrix& weight,
                       const std::vector<double>& pull) {
    double pulls = 0;
    double weights = 0;
    for (const size_t a : alike) {
      pulls += pull[a];
      for (const size_t b : alike) weights += weight[a][b];
    }
    return variance * variance * (pulls * pulls - weights) + variance;
  }

  const std::vector<Contestant>& contestants_;
  std::vector<double> shared_;               // variances, by dimension
  std::vector<std::vector<size_t>> values_;  // of each dimension, by contestant
  double own_ = kOwnError * kOwnError;
};

}  // namespace

RaceBelief::RaceBelief(const std::vector<Contestant>& contestants, const RaceFit& fit) {
  const size_t n = contestants.size();
  std::vector<size_t> measured;
  for (size_t i = 0; i < n; ++i) {
    mean_.push_back(contestants[i].predicted);
    if (contestants[i].measured) measured.push_back(i);
  }

  PredictionErrors errors(contestants);
  Matrix weight;             // inverse covariance of what was measured
  std::vector<double> pull;  // weight x (measured - predicted)
  const auto weigh = [&] {
    weight.assign(measured.size(), std::vector<double>(measured.size()));
    for (size_t a = 0; a < measured.size(); ++a) {
      for (size_t b = a; b < measured.size(); ++b) {
        weight[a][b] = weight[b][a] =
            errors.Covariance(measured[a], measured[b]) +
            fit.Covariance(contestants[measured[a]].entrant, contestants[measured[b]].entrant);
      }
    }
    InvertSymmetric(weight);
    pull.assign(measured.size(), 0);
    for (size_t a = 0; a < measured.size(); ++a) {
      for (size_t b = 0; b < measured.size(); ++b) {
        const Contestant& other = contestants[measured[b]];
        pull[a] += weight[a][b] * (*other.measured - other.predicted);
      }
    }
  };
  weigh();
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    errors.Learn(measured, weight, pull);
    weigh();
  }

  Matrix prior(measured.size(), std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < measured.size(); ++a) {
      prior[a][i] = errors.Covariance(i, measured[a]);
      mean_[i] += prior[a][i] * pull[a];
    }
  }
  const auto known = std::make_shared<std::vector<double>>(n * n);
  std::vector<double> gain(measured.size());  // prior of one x weight
  for (size_t i = 0; i < n; ++i) {
    std::fill(gain.begin(), gain.end(), 0.0);
    for (size_t a = 0; a < measured.size(); ++a) {
      for (size_t b = 0; b < measured.size(); ++b) gain[b] += prior[a][i] * weight[a][b];
    }
    std::vector<double> row = errors.CovariancesFrom(i);
    for (size_t a = 0; a < measured.size(); ++a) {
      for (size_t j = i; j < n; ++j) row[j - i] -= gain[a] * prior[a][j];
    }
    std::copy(row.begin(), row.end(), known->begin() + static_cast<std::ptrdiff_t>(i * n + i));
  }
  known_ = known;
  visit_variance_ = fit.scatter() * fit.scatter();
  round_variance_ = fit.round_scatter() * fit.round_scatter();
}

double RaceBelief::Known(size_t i, size_t j) const {
  return (*known_)[std::min(i, j) * size() + std::max(i, j)];
}

double RaceBelief::Covariance(size_t i, size_t j) const {
  const size_t round = size();
  double covariance = i < round && j < round   ? Known(i, j)
                      : i == j && plans_round_ ? round_variance_
                                               : 0.0;
  for (const Lowering& each : planned_) covariance -= each[i] * each[j];
  return covariance;
}

double RaceBelief::Deviation(size_t contestant, size_t other) const {
  return DeviationOf(Covariance(contestant, contestant) + Covariance(other, other) -
                     2 * Covariance(contestant, other));
}

double RaceBelief::Chance(size_t contestant, size_t other, double margin) const {
  if (contestant == other) return 0;
  return ChanceBelowZero(mean_[contestant] - mean_[other] + margin, Deviation(contestant, other));
}

double RaceBelief::Doubt(size_t other, double margin) const {
  double doubt = 0;
  for (size_t i = 0; i < size(); ++i) doubt += Chance(i, other, margin);
  return doubt;
}

void RaceBelief::BeginRound() {
  for (Lowering& each : planned_) each.back() = 0;
  plans_round_ = true;
}

RaceBelief::Lowering RaceBelief::LoweredBy(size_t contestant) const {
  // What the visit will say varies as this contestant and the round do, and by itself.
  const size_t round = size();
  Lowering told(round + 1);
  for (size_t i = 0; i <= round; ++i) told[i] = Covariance(i, contestant) + Covariance(i, round);
  const double variance = told[contestant] + told[round] + visit_variance_;
  for (double& each : told) each /= std::sqrt(variance);
  return told;
}

void RaceBelief::Visit(size_t contestant) { planned_.push_back(LoweredBy(contestant)); }

double RaceBelief::Loss(size_t other) const {
  const Behind behind = BehindRivals(other);
  return LossOf(behind, std::vector<double>(behind.rivals.size(), 0.0));
}

std::vector<double> RaceBelief::LossesAfter(const std::vector<size_t>& visited,
                                            size_t other) const {
  const Behind behind = BehindRivals(other);
  std::vector<double> losses;
  std::vector<double> lowered(behind.rivals.size());
  for (const size_t contestant : visited) {
    const Lowering by = LoweredBy(contestant);
    for (size_t a = 0; a < lowered.size(); ++a) lowered[a] = by[other] - by[behind.rivals[a]];
    losses.push_back(LossOf(behind, lowered));
  }
  return losses;
}

std::vector<size_t> RaceBelief::Rivals(size_t other, size_t most) const {
  std::vector<std::pair<double, size_t>> rivals;
  for (size_t i = 0; i < size(); ++i) {
    if (i == other) continue;
    rivals.emplace_back(-MeanAboveZero(mean_[other] - mean_[i], Deviation(i, other)), i);
  }
  std::sort(rivals.begin(), rivals.end());
  if (rivals.size() > most) rivals.resize(most);
  std::vector<size_t> contestants;
  for (const auto& [loss, i] : rivals) contestants.push_back(i);
  return contestants;
}

RaceBelief::Behind RaceBelief::BehindRivals(size_t other) const {
  const auto covariance = [&](size_t i, size_t j) {
    double all = Known(other, other) - Known(other, i) - Known(other, j) + Known(i, j);
    for (const Lowering& each : planned_) all -= (each[other] - each[i]) * (each[other] - each[j]);
    return all;
  };
  Behind behind;
  for (size_t i = 0; i < size(); ++i) {
    const double mean = mean_[other] - mean_[i];
    if (i == other || MeanAboveZero(mean, DeviationOf(covariance(i, i))) <= kNoLoss) continue;
    behind.rivals.push_back(i);
    behind.mean.push_back(mean);
  }
  const size_t n = behind.rivals.size();
  behind.covariance.resize(n * n);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a; b < n; ++b) {
      behind.covariance[a * n + b] = covariance(behind.rivals[a], behind.rivals[b]);
    }
  }
  return behind;
}

double RaceBelief::LossOf(const Behind& behind, const std::vector<double>& lowered) {
  const size_t n = behind.rivals.size();
  double most = 0;  // mean of the most that it is worse by; of those taken in so far, and itself
  double variance = 0;
  std::vector<double> with(n, 0.0);  // covariance of that with each rival's
  for (size_t a = 0; a < n; ++a) {
    const double* row = behind.covariance.data() + a * n;
    const double mean = behind.mean[a];
    const double own = row[a] - lowered[a] * lowered[a];
    if (MeanAboveZero(mean, DeviationOf(own)) <= kNoLoss) continue;
    const double apart = DeviationOf(variance + own - 2 * with[a]);
    const double above = MeanAboveZero(mean - most, apart);
    if (above < kNoLoss) continue;
    const double taken = ChanceBelowZero(most - mean, apart);  // the chance that this one is more
    const double density = apart == 0 ? 0 : Density((most - mean) / apart);
    const double square = (most * most + variance) * (1 - taken) + (mean * mean + own) * taken +
                          (most + mean) * apart * density;
    most += above;
    variance = std::max(0.0, square - most * most);
    for (size_t b = a + 1; b < n; ++b) {
      with[b] = with[b] * (1 - taken) + (row[b] - lowered[a] * lowered[b]) * taken;
    }
  }
  return most;
}

}  // namespace trimtab

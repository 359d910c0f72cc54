#include "search/race/race_belief.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

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
// A contestant of which less is expected adds nothing to a loss.
constexpr double kNoLoss = 1e-7;

/// The chance that a normal variable of this mean and deviation is below 0.
double ChanceBelowZero(double mean, double deviation) {
  if (deviation == 0) return mean < 0 ? 1 : 0;
  return std::erfc(mean / deviation / std::numbers::sqrt2) / 2;
}

double Density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }

/// The mean of what is above 0 of a normal variable of this mean and deviation.
double MeanAboveZero(double mean, double deviation) {
  if (deviation == 0) return std::max(mean, 0.0);
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
  std::vector<double> shared_;  // variances, by dimension
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
      for (size_t b = 0; b < measured.size(); ++b) {
        weight[a][b] =
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

  covariance_.assign(n + 1, std::vector<double>(n + 1, 0.0));
  Matrix prior(n, std::vector<double>(measured.size()));
  Matrix gain(n, std::vector<double>(measured.size(), 0.0));  // prior x weight
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < measured.size(); ++a) {
      prior[i][a] = errors.Covariance(i, measured[a]);
      mean_[i] += prior[i][a] * pull[a];
    }
    for (size_t a = 0; a < measured.size(); ++a) {
      for (size_t b = 0; b < measured.size(); ++b) gain[i][b] += prior[i][a] * weight[a][b];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      double covariance = errors.Covariance(i, j);
      for (size_t a = 0; a < measured.size(); ++a) covariance -= gain[i][a] * prior[j][a];
      covariance_[i][j] = covariance_[j][i] = covariance;
    }
  }
  visit_variance_ = fit.scatter() * fit.scatter();
  round_variance_ = fit.round_scatter() * fit.round_scatter();
}

double RaceBelief::Deviation(size_t contestant, size_t other) const {
  const double variance = covariance_[contestant][contestant] + covariance_[other][other] -
                          2 * covariance_[contestant][other];
  return std::sqrt(std::max(0.0, variance));
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
  const size_t round = size();
  for (size_t i = 0; i <= round; ++i) covariance_[i][round] = covariance_[round][i] = 0;
  covariance_[round][round] = round_variance_;
}

double RaceBelief::Told(size_t contestant, std::vector<double>& covariance) const {
  const size_t round = size();
  covariance.resize(round + 1);
  for (size_t i = 0; i <= round; ++i) {
    covariance[i] = covariance_[i][contestant] + covariance_[i][round];
  }
  return covariance[contestant] + covariance[round] + visit_variance_;
}

void RaceBelief::Visit(size_t contestant) {
  std::vector<double> told;
  const double variance = Told(contestant, told);
  for (size_t i = 0; i < told.size(); ++i) {
    for (size_t j = 0; j < told.size(); ++j) covariance_[i][j] -= told[i] * told[j] / variance;
  }
}

double RaceBelief::Loss(size_t other) const {
  return Loss(other, std::vector<double>(size(), 0.0));
}

double RaceBelief::LossAfter(size_t contestant, size_t other) const {
  std::vector<double> less;
  const double variance = Told(contestant, less);
  for (double& each : less) each /= std::sqrt(variance);
  return Loss(other, less);
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

double RaceBelief::Loss(size_t other, const std::vector<double>& less) const {
  // What `other` is worse by than i: its mean, and the covariance of two of these.
  const auto worse = [&](size_t i) { return mean_[other] - mean_[i]; };
  const auto covariance = [&](size_t i, size_t j) {
    const double all = covariance_[other][other] - covariance_[other][i] - covariance_[other][j] +
                       covariance_[i][j];
    return all - (less[other] - less[i]) * (less[other] - less[j]);
  };
  const auto deviation = [](double variance) { return std::sqrt(std::max(0.0, variance)); };
  std::vector<size_t> rivals;
  for (size_t i = 0; i < size(); ++i) {
    if (i != other && MeanAboveZero(worse(i), deviation(covariance(i, i))) > kNoLoss) {
      rivals.push_back(i);
    }
  }
  double most = 0;  // mean of the most that it is worse by; of those taken in so far, and itself
  double variance = 0;
  std::vector<double> with(rivals.size(), 0.0);  // covariance of that with each rival's
  for (size_t a = 0; a < rivals.size(); ++a) {
    const double mean = worse(rivals[a]);
    const double own = covariance(rivals[a], rivals[a]);
    const double apart = deviation(variance + own - 2 * with[a]);
    const double above = MeanAboveZero(mean - most, apart);
    if (above < kNoLoss) continue;
    const double taken = ChanceBelowZero(most - mean, apart);  // the chance that this one is more
    const double density = apart == 0 ? 0 : Density((most - mean) / apart);
    const double square = (most * most + variance) * (1 - taken) + (mean * mean + own) * taken +
                          (most + mean) * apart * density;
    most += above;
    variance = std::max(0.0, square - most * most);
    for (size_t b = a + 1; b < rivals.size(); ++b) {
      with[b] = with[b] * (1 - taken) + covariance(rivals[a], rivals[b]) * taken;
    }
  }
  return most;
}

}  // namespace trimtab

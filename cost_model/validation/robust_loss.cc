#include "cost_model/validation/robust_loss.h"

#include <algorithm>
#include <cmath>

#include "cost_model/cholesky.h"

namespace trimtab {
namespace {

constexpr double kHuberScale = 0.05;  // residuals beyond it count linearly
constexpr double kSigma = 0.05;       // what runs are off by that nothing explains
constexpr double kMostChange = 0.4;   // of a constant's logarithm in a step
constexpr int kMostIterations = 20;   // of Newton's method, within a step
constexpr int kMostHalvings = 6;
constexpr double kLeastGain = 1e-9;  // of the loss, or a step is found

/// The loss of a residual, and its first two derivatives; the first is by the residual's square.
struct Huber {
  explicit Huber(double residual) : root(std::hypot(1, residual / kHuberScale)) {}
  double loss() const { return kHuberScale * kHuberScale / (kSigma * kSigma) * (root - 1); }
  double slope() const { return 1 / (kSigma * kSigma * root); }
  double curvature() const { return slope() / (root * root); }
  double root;
};

void AddOuter(double count, const Derivatives& derivatives, RobustLoss::Matrix& matrix) {
  for (const auto& [i, di] : derivatives) {
    for (const auto& [j, dj] : derivatives) matrix[i][j] += count * di * dj;
  }
}

}  // namespace

double RobustLoss::Of(const std::vector<double>& weights, const std::vector<double>& residuals,
                      const Logs& logs) const {
  double loss = 0;
  for (size_t row = 0; row < residuals.size(); ++row) {
    loss += weights[row] * Huber(residuals[row]).loss();
  }
  for (size_t i = 0; i < logs.size(); ++i) loss += 0.5 * PriorError(i, logs) * PriorError(i, logs);
  return loss;
}

RobustLoss::Matrix RobustLoss::Curvature(const LinearRows& rows) const {
  const size_t n = constants_.size();
  Matrix matrix(n, std::vector<double>(n, 0));
  for (size_t i = 0; i < n; ++i) {
    matrix[i][i] = 1 / (constants_[i].spread * constants_[i].spread);
  }
  for (size_t row = 0; row < rows.residuals.size(); ++row) {
    const double count = rows.weights[row] * Huber(rows.residuals[row]).slope();
    AddOuter(count, *rows.derivatives[row], matrix);
  }
  return matrix;
}

RobustLoss::Next RobustLoss::Step(const LinearRows& rows, const Logs& logs,
                                  const std::set<size_t>& fixed, double damping) const {
  const size_t n = constants_.size();
  const Matrix start = Curvature(rows);
  std::vector<double> stiffness(n);
  Logs least(n);
  Logs most(n);
  for (size_t i = 0; i < n; ++i) {
    const bool moves = !fixed.contains(i);
    stiffness[i] = damping * start[i][i];
    least[i] = moves ? std::max(constants_[i].least, logs[i] - kMostChange) : logs[i];
    most[i] = moves ? std::min(constants_[i].most, logs[i] + kMostChange) : logs[i];
  }
  const auto residuals_at = [&](const Logs& at) {
    std::vector<double> residuals = rows.residuals;
    for (size_t row = 0; row < residuals.size(); ++row) {
      for (const auto& [i, derivative] : *rows.derivatives[row]) {
        residuals[row] += derivative * (at[i] - logs[i]);
      }
    }
    return residuals;
  };
  const auto loss_at = [&](const Logs& at, const std::vector<double>& residuals) {
    double loss = Of(rows.weights, residuals, at);
    for (size_t i = 0; i < n; ++i) {
      loss += 0.5 * stiffness[i] * (at[i] - logs[i]) * (at[i] - logs[i]);
    }
    return loss;
  };

  Logs next = logs;
  std::vector<double> residuals = rows.residuals;
  double loss = loss_at(next, residuals);
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    Matrix matrix(n, std::vector<double>(n, 0));
    std::vector<double> down(n);
    for (size_t i = 0; i < n; ++i) {
      matrix[i][i] = stiffness[i] + 1 / (constants_[i].spread * constants_[i].spread);
      down[i] = -PriorError(i, next) / constants_[i].spread - stiffness[i] * (next[i] - logs[i]);
    }
    for (size_t row = 0; row < residuals.size(); ++row) {
      const Huber huber(residuals[row]);
      AddOuter(rows.weights[row] * huber.curvature(), *rows.derivatives[row], matrix);
      for (const auto& [i, derivative] : *rows.derivatives[row]) {
        down[i] -= rows.weights[row] * huber.slope() * residuals[row] * derivative;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const bool held = down[i] > 0 ? next[i] >= most[i] : next[i] <= least[i];
      if (!held) continue;
      for (size_t j = 0; j < n; ++j) matrix[i][j] = matrix[j][i] = 0;
      matrix[i][i] = 1;
      down[i] = 0;
    }
    const std::vector<double> change = Cholesky(std::move(matrix)).Solve(down);
    const double before = loss;
    double share = 1;
    for (int halving = 0; halving < kMostHalvings && loss == before; ++halving, share /= 2) {
      Logs moved(n);
      for (size_t i = 0; i < n; ++i) {
        moved[i] = std::clamp(next[i] + share * change[i], least[i], most[i]);
      }
      std::vector<double> moved_residuals = residuals_at(moved);
      const double moved_loss = loss_at(moved, moved_residuals);
      if (moved_loss >= loss) continue;
      next = std::move(moved);
      residuals = std::move(moved_residuals);
      loss = moved_loss;
    }
    if (before - loss <= kLeastGain * before) break;
  }
  return {std::move(next), loss};
}

double RobustLoss::PriorError(size_t i, const Logs& logs) const {
  return (logs[i] - constants_[i].prior) / constants_[i].spread;
}

}  // namespace trimtab

#include "cost_model/validation/constant_fitter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "cost_model/cholesky.h"

namespace trimtab {
namespace {

constexpr double kHuberScale = 0.05;      // residuals beyond it count linearly
constexpr double kSigma = 0.05;           // what runs are off by that nothing explains
constexpr double kFamilyExponent = -0.4;  // of the weight of a row
constexpr double kDifference = 0.02;      // of a constant's logarithm, for derivatives
constexpr double kMostChange = 0.4;       // of a constant's logarithm in a step
constexpr int kMostSteps = 40;
constexpr int kMostAttempts = 7;  // at a step, each with more damping

}  // namespace

ConstantFitter::ConstantFitter(const std::vector<ValidationRow>& rows, RunPredictor& predictor,
                               Outcome outcome)
    : rows_(rows), predictor_(predictor), outcome_(outcome) {
  std::vector<const Cluster*> clusters;
  std::map<std::string, int> family_rows;
  for (const ValidationRow& row : rows) {
    clusters.push_back(&row.of.cluster);
    ++family_rows[row.published.family];
  }
  constants_ = ConstantsOf(clusters, outcome);
  for (const ValidationRow& row : rows) {
    std::vector<size_t>& concerned = concerned_.emplace_back();
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (Concerns(constants_[i], row.of.cluster)) concerned.push_back(i);
    }
    weights_.push_back(std::pow(family_rows[row.published.family], kFamilyExponent));
  }
}

double ConstantFitter::Residual(size_t row, const Logs& logs) {
  Cluster cluster = rows_[row].of.cluster;
  for (const size_t i : concerned_[row]) Apply(constants_[i], std::exp(logs[i]), cluster);
  const Estimate estimate = predictor_.PredictWith(rows_[row], cluster);
  if (outcome_ == Outcome::kStepTime) {
    return std::log(estimate.step_time_s / rows_[row].StepSeconds());
  }
  return std::log(PeakBytesAsMeasured(rows_[row], cluster, estimate) /
                  rows_[row].published.measured.peak_mem_bytes);
}

Derivatives ConstantFitter::DerivativesOf(size_t row, const Logs& logs, double residual) {
  Derivatives derivatives;
  Logs moved = logs;
  for (const size_t i : concerned_[row]) {
    moved[i] = logs[i] + kDifference;
    derivatives.emplace_back(i, (Residual(row, moved) - residual) / kDifference);
    moved[i] = logs[i];
  }
  return derivatives;
}

Logs ConstantFitter::Fit(const std::vector<size_t>& fitted, const Logs& start,
                         const std::set<size_t>& fixed, std::vector<Derivatives>& jacobian,
                         bool fresh) {
  Logs logs = start;
  double damping = 1e-3;
  Vector residuals = ResidualsOf(fitted, logs);
  double loss = Loss(fitted, residuals, logs);
  for (int step = 0; step < kMostSteps; ++step) {
    for (size_t i = 0; fresh && i < fitted.size(); ++i) {
      jacobian[fitted[i]] = DerivativesOf(fitted[i], logs, residuals[i]);
    }
    bool better = false;
    for (int attempt = 0; attempt < kMostAttempts && !better; ++attempt, damping *= 8) {
      const Logs next = Step(fitted, residuals, logs, fixed, jacobian, damping);
      const Vector next_residuals = ResidualsOf(fitted, next);
      const double next_loss = Loss(fitted, next_residuals, next);
      if (!(next_loss < loss)) continue;
      better = true;
      const bool done = loss - next_loss < 1e-6 * loss;
      logs = next;
      residuals = next_residuals;
      loss = next_loss;
      damping /= 64;
      if (done) return logs;
    }
    if (!better) break;
  }
  return logs;
}

Logs ConstantFitter::ForgetUnless(const std::vector<size_t>& fitted, const Logs& logs,
                                  const std::set<size_t>& fixed) const {
  std::set<size_t> kept = fixed;
  for (const size_t row : fitted) kept.insert(concerned_[row].begin(), concerned_[row].end());
  Logs forgotten = logs;
  for (size_t i = 0; i < constants_.size(); ++i) {
    if (!kept.contains(i)) forgotten[i] = constants_[i].prior;
  }
  return forgotten;
}

std::vector<double> ConstantFitter::Spreads(const std::vector<size_t>& fitted, const Logs& logs,
                                            const std::vector<Derivatives>& jacobian) {
  const Cholesky curvature(Curvature(fitted, ResidualsOf(fitted, logs), jacobian));
  Vector spreads;
  for (size_t i = 0; i < constants_.size(); ++i) {
    Vector unit(constants_.size(), 0);
    unit[i] = 1;
    spreads.push_back(std::sqrt(curvature.Solve(unit)[i]));
  }
  return spreads;
}

ConstantFitter::Vector ConstantFitter::ResidualsOf(const std::vector<size_t>& rows,
                                                   const Logs& logs) {
  Vector residuals;
  residuals.reserve(rows.size());
  for (const size_t row : rows) residuals.push_back(Residual(row, logs));
  return residuals;
}

double ConstantFitter::PriorError(size_t i, const Logs& logs) const {
  return (logs[i] - constants_[i].prior) / constants_[i].spread;
}

double ConstantFitter::Loss(const std::vector<size_t>& rows, const Vector& residuals,
                            const Logs& logs) const {
  constexpr double kRatio = kHuberScale / kSigma;
  double loss = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double scaled = residuals[i] / kHuberScale;
    loss += weights_[rows[i]] * kRatio * kRatio * (std::sqrt(1 + scaled * scaled) - 1);
  }
  for (size_t i = 0; i < logs.size(); ++i) loss += 0.5 * PriorError(i, logs) * PriorError(i, logs);
  return loss;
}

/// What a row counts for in a step: its weight, less for outliers.
double ConstantFitter::CountOf(size_t row, double residual) const {
  const double scaled = residual / kHuberScale;
  return weights_[row] / std::sqrt(1 + scaled * scaled) / (kSigma * kSigma);
}

ConstantFitter::Matrix ConstantFitter::Curvature(const std::vector<size_t>& rows,
                                                 const Vector& residuals,
                                                 const std::vector<Derivatives>& jacobian) const {
  const size_t n = constants_.size();
  Matrix a(n, Vector(n, 0));
  for (size_t i = 0; i < n; ++i) {
    a[i][i] = 1 / (constants_[i].spread * constants_[i].spread);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const double count = CountOf(rows[r], residuals[r]);
    for (const auto& [i, di] : jacobian[rows[r]]) {
      for (const auto& [j, dj] : jacobian[rows[r]]) a[i][j] += count * di * dj;
    }
  }
  return a;
}

Logs ConstantFitter::Step(const std::vector<size_t>& rows, const Vector& residuals,
                          const Logs& logs, const std::set<size_t>& fixed,
                          const std::vector<Derivatives>& jacobian, double damping) const {
  const size_t n = constants_.size();
  Matrix a = Curvature(rows, residuals, jacobian);
  Vector b(n, 0);
  for (size_t i = 0; i < n; ++i) b[i] = -PriorError(i, logs) / constants_[i].spread;
  for (size_t r = 0; r < rows.size(); ++r) {
    const double count = CountOf(rows[r], residuals[r]);
    for (const auto& [i, di] : jacobian[rows[r]]) b[i] -= count * di * residuals[r];
  }
  for (size_t i = 0; i < n; ++i) a[i][i] *= 1 + damping;
  for (const size_t i : fixed) {
    for (size_t j = 0; j < n; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  const Vector change = Cholesky(std::move(a)).Solve(b);
  Logs next = logs;
  for (size_t i = 0; i < n; ++i) {
    if (fixed.contains(i)) continue;
    const double moved = logs[i] + std::clamp(change[i], -kMostChange, kMostChange);
    next[i] = std::clamp(moved, constants_[i].least, constants_[i].most);
  }
  return next;
}

}  // namespace trimtab

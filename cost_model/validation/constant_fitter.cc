#include "cost_model/validation/constant_fitter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cost_model/cholesky.h"
#include "engine/base/on_threads.h"

namespace trimtab {
namespace {

constexpr double kFamilyExponent = -0.4;  // of the weight of a row
constexpr double kDifference = 0.02;      // of a constant's logarithm, for derivatives
constexpr double kLeastGain = 0.02;       // of the loss, a log likelihood, or a fit has ended
constexpr double kLeastDamping = 1e-3;
constexpr int kMostSteps = 40;
constexpr int kMostAttempts = 7;  // at a step, each with more damping

/// Makes `derivatives` say what a residual that changed by `change` did between two points, and as
/// they did in every other direction (C. G. Broyden, "A class of methods for solving nonlinear
/// simultaneous equations", 1965).
void Correct(Derivatives& derivatives, const Logs& from, const Logs& to, double change) {
  double length = 0;
  for (const auto& [i, derivative] : derivatives) {
    const double moved = to[i] - from[i];
    change -= derivative * moved;
    length += moved * moved;
  }
  if (length == 0) return;
  for (auto& [i, derivative] : derivatives) derivative += change * (to[i] - from[i]) / length;
}

}  // namespace

ConstantFitter::ConstantFitter(const std::vector<ValidationRow>& rows, RunPredictor& predictor,
                               Outcome outcome)
    : rows_(rows), predictor_(predictor), outcome_(outcome), loss_(constants_) {
  std::vector<const Cluster*> clusters;
  std::map<std::string, int> family_rows;
  for (const ValidationRow& row : rows) {
    clusters.push_back(&row.of.cluster);
    ++family_rows[row.published.family];
  }
  constants_ = ConstantsOf(clusters, outcome);
  std::map<std::string_view, size_t> shares;
  for (const ValidationRow& row : rows) {
    std::vector<size_t>& concerned = concerned_.emplace_back();
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (Concerns(constants_[i], row.of.cluster)) concerned.push_back(i);
    }
    weights_.push_back(std::pow(family_rows[row.published.family], kFamilyExponent));
    predictor.Predict(row);  // records what threads then ask for
    share_of_.push_back(shares.try_emplace(row.recordings, shares.size()).first->second);
  }
}

double ConstantFitter::Residual(size_t row, const Logs& logs) {
  Cluster cluster = rows_[row].of.cluster;
  for (const size_t i : concerned_[row]) Apply(constants_[i], std::exp(logs[i]), cluster);
  if (outcome_ == Outcome::kStepTime) {
    const Estimate estimate = predictor_.PredictWith(rows_[row], std::move(cluster));
    return std::log(estimate.step_time_s / rows_[row].StepSeconds());
  }
  const Estimate estimate = predictor_.PredictWith(rows_[row], cluster);
  return std::log(PeakBytesAsMeasured(rows_[row], cluster, estimate) /
                  rows_[row].published.measured.peak_mem_bytes);
}

void ConstantFitter::OnRows(const std::vector<size_t>& rows,
                            const std::function<void(size_t)>& work) const {
  std::vector<std::vector<size_t>> shares(rows_.size());
  for (size_t i = 0; i < rows.size(); ++i) shares[share_of_[rows[i]]].push_back(i);
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  OnThreads(threads, shares.size(), [&](size_t share) {
    for (const size_t i : shares[share]) work(i);
  });
}

std::vector<Derivatives> ConstantFitter::DerivativesAt(const Logs& logs) {
  std::vector<size_t> all(rows());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<Derivatives> derivatives(rows());
  OnRows(all, [&](size_t row) {
    const double residual = Residual(row, logs);
    Logs moved = logs;
    for (const size_t i : concerned_[row]) {
      moved[i] = logs[i] + kDifference;
      derivatives[row].emplace_back(i, (Residual(row, moved) - residual) / kDifference);
      moved[i] = logs[i];
    }
  });
  return derivatives;
}

Logs ConstantFitter::Fit(const std::vector<size_t>& fitted, const Logs& start,
                         const std::set<size_t>& fixed, std::vector<Derivatives>& jacobian) {
  Logs logs = start;
  double damping = kLeastDamping;
  LinearRows about = RowsOf(fitted, logs, jacobian);
  double loss = loss_.Of(about.weights, about.residuals, logs);
  for (int step = 0; step < kMostSteps; ++step) {
    bool better = false;
    for (int attempt = 0; attempt < kMostAttempts && !better; ++attempt, damping *= 8) {
      const auto [next, promised] = loss_.Step(about, logs, fixed, damping);
      if (loss - promised < kLeastGain) return logs;
      Vector residuals = ResidualsOf(fitted, next);
      const double next_loss = loss_.Of(about.weights, residuals, next);
      for (size_t i = 0; i < fitted.size(); ++i) {
        Correct(jacobian[fitted[i]], logs, next, residuals[i] - about.residuals[i]);
      }
      if (!(next_loss < loss)) continue;
      better = true;
      logs = next;
      about.residuals = std::move(residuals);
      loss = next_loss;
      damping = std::max(damping / 64, kLeastDamping / 8);
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
  const Cholesky curvature(loss_.Curvature(RowsOf(fitted, logs, jacobian)));
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
  Vector residuals(rows.size());
  OnRows(rows, [&](size_t i) { residuals[i] = Residual(rows[i], logs); });
  return residuals;
}

LinearRows ConstantFitter::RowsOf(const std::vector<size_t>& rows, const Logs& logs,
                                  const std::vector<Derivatives>& jacobian) {
  LinearRows about{.weights = {}, .residuals = ResidualsOf(rows, logs), .derivatives = {}};
  for (const size_t row : rows) {
    about.weights.push_back(weights_[row]);
    about.derivatives.push_back(&jacobian[row]);
  }
  return about;
}

}  // namespace trimtab

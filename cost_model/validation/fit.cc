#include "cost_model/validation/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace trimtab {
namespace {

constexpr double kHuberScale = 0.05;      // residuals beyond it count linearly
constexpr double kSigma = 0.05;           // what runs are off by that nothing explains
constexpr double kFamilyExponent = -0.4;  // of the weight of a row
constexpr double kDifference = 0.02;      // of a constant's logarithm, for derivatives
constexpr int kFolds = 5;
constexpr int kMostSteps = 12;

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// Solves a x = b for a symmetric positive definite `a`, by Cholesky's decomposition, in place.
Vector SolveInPlace(Matrix& a, Vector b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

/// Which fold a family is in: the same everywhere, and none that its name says anything about.
int FoldOf(const std::string& family) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : family) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<int>((hash >> 8) % kFolds);
}

/// A derivative: of which constant's logarithm, and its value.
using SparseRow = std::vector<std::pair<size_t, double>>;

class Fitter {
 public:
  Fitter(const std::vector<ValidationRow>& rows, RunPredictor& predictor)
      : rows_(rows), predictor_(predictor) {
    std::vector<const Cluster*> clusters;
    std::map<std::string, int> family_rows;
    for (const ValidationRow& row : rows) {
      clusters.push_back(&row.of.cluster);
      ++family_rows[row.published.family];
    }
    constants_ = ConstantsOf(clusters);
    for (const ValidationRow& row : rows) {
      std::vector<size_t>& concerned = concerned_.emplace_back();
      for (size_t i = 0; i < constants_.size(); ++i) {
        if (Concerns(constants_[i], row.of.cluster)) concerned.push_back(i);
      }
      weights_.push_back(std::pow(family_rows[row.published.family], kFamilyExponent));
    }
  }

  const std::vector<FitConstant>& constants() const { return constants_; }

  /// Logarithm of predicted / measured seconds.
  double Residual(size_t row, const Vector& logs) {
    Cluster cluster = rows_[row].of.cluster;
    for (const size_t i : concerned_[row]) Apply(constants_[i], std::exp(logs[i]), cluster);
    const Estimate estimate = predictor_.PredictWith(rows_[row], cluster);
    return std::log(estimate.step_time_s / rows_[row].StepSeconds());
  }

  SparseRow Derivatives(size_t row, const Vector& logs, double residual) {
    SparseRow derivatives;
    Vector moved = logs;
    for (const size_t i : concerned_[row]) {
      moved[i] = logs[i] + kDifference;
      derivatives.emplace_back(i, (Residual(row, moved) - residual) / kDifference);
      moved[i] = logs[i];
    }
    return derivatives;
  }

  /// The constants that fit the rows `fitted` best, from `start`; those `fixed` stay.
  Vector Fit(const std::vector<size_t>& fitted, const Vector& start, const std::set<size_t>& fixed,
             std::vector<SparseRow>& jacobian, bool fresh_derivatives) {
    Vector logs = start;
    double damping = 1e-3;
    Vector residuals = ResidualsOf(fitted, logs);
    double loss = Loss(fitted, residuals, logs);
    for (int step = 0; step < kMostSteps; ++step) {
      if (fresh_derivatives) {
        for (size_t i = 0; i < fitted.size(); ++i) {
          jacobian[fitted[i]] = Derivatives(fitted[i], logs, residuals[i]);
        }
      }
      bool better = false;
      for (int attempt = 0; attempt < 4 && !better; ++attempt, damping *= 8) {
        const Vector next = Step(fitted, residuals, logs, fixed, jacobian, damping);
        const Vector next_residuals = ResidualsOf(fitted, next);
        const double next_loss = Loss(fitted, next_residuals, next);
        if (!(next_loss < loss)) continue;
        better = true;
        const bool done = loss - next_loss < 1e-4 * loss;
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

  /// Standard deviations after a fit of all rows: of the inverse of the curvature.
  Vector Spreads(const std::vector<size_t>& fitted, const Vector& logs,
                 const std::vector<SparseRow>& jacobian) {
    const Matrix curvature = Curvature(fitted, ResidualsOf(fitted, logs), jacobian);
    Vector spreads;
    for (size_t i = 0; i < constants_.size(); ++i) {
      Matrix copy = curvature;
      Vector unit(constants_.size(), 0);
      unit[i] = 1;
      spreads.push_back(std::sqrt(SolveInPlace(copy, unit)[i]));
    }
    return spreads;
  }

 private:
  Vector ResidualsOf(const std::vector<size_t>& rows, const Vector& logs) {
    Vector residuals;
    residuals.reserve(rows.size());
    for (const size_t row : rows) residuals.push_back(Residual(row, logs));
    return residuals;
  }

  double PriorError(size_t i, const Vector& logs) const {
    return (logs[i] - constants_[i].prior) / constants_[i].kind->spread;
  }

  double Loss(const std::vector<size_t>& rows, const Vector& residuals, const Vector& logs) const {
    constexpr double kRatio = kHuberScale / kSigma;
    double loss = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double scaled = residuals[i] / kHuberScale;
      loss += weights_[rows[i]] * kRatio * kRatio * (std::sqrt(1 + scaled * scaled) - 1);
    }
    for (size_t i = 0; i < logs.size(); ++i)
      loss += 0.5 * PriorError(i, logs) * PriorError(i, logs);
    return loss;
  }

  /// What a row counts for in a step: its weight, less for outliers.
  double CountOf(size_t row, double residual) const {
    const double scaled = residual / kHuberScale;
    return weights_[row] / std::sqrt(1 + scaled * scaled) / (kSigma * kSigma);
  }

  Matrix Curvature(const std::vector<size_t>& rows, const Vector& residuals,
                   const std::vector<SparseRow>& jacobian) const {
    const size_t n = constants_.size();
    Matrix a(n, Vector(n, 0));
    for (size_t i = 0; i < n; ++i) {
      a[i][i] = 1 / (constants_[i].kind->spread * constants_[i].kind->spread);
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      const double count = CountOf(rows[r], residuals[r]);
      for (const auto& [i, di] : jacobian[rows[r]]) {
        for (const auto& [j, dj] : jacobian[rows[r]]) a[i][j] += count * di * dj;
      }
    }
    return a;
  }

  Vector Step(const std::vector<size_t>& rows, const Vector& residuals, const Vector& logs,
              const std::set<size_t>& fixed, const std::vector<SparseRow>& jacobian,
              double damping) const {
    const size_t n = constants_.size();
    Matrix a = Curvature(rows, residuals, jacobian);
    Vector b(n, 0);
    for (size_t i = 0; i < n; ++i) b[i] = -PriorError(i, logs) / constants_[i].kind->spread;
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
    const Vector change = SolveInPlace(a, b);
    Vector next = logs;
    for (size_t i = 0; i < n; ++i) {
      if (fixed.contains(i)) continue;
      next[i] = std::clamp(logs[i] + change[i], constants_[i].least, constants_[i].most);
    }
    return next;
  }

  const std::vector<ValidationRow>& rows_;
  RunPredictor& predictor_;
  std::vector<FitConstant> constants_;
  std::vector<std::vector<size_t>> concerned_;  // constants, by row
  Vector weights_;
};

/// Fits once without each group of rows, and predicts those.
class CrossValidation {
 public:
  CrossValidation(Fitter& fitter, size_t rows, const Vector& start,
                  const std::vector<SparseRow>& jacobian)
      : fitter_(fitter), rows_(rows), start_(start), jacobian_(jacobian) {}

  Vector Errors(const std::function<std::string(size_t)>& group_of,
                const std::set<size_t>& fixed = {}, const Vector* start = nullptr) {
    std::map<std::string, std::vector<size_t>> groups;
    for (size_t row = 0; row < rows_; ++row) groups[group_of(row)].push_back(row);
    Vector errors(rows_, 0);
    for (const auto& [name, held_out] : groups) {
      std::vector<size_t> fitted;
      for (size_t row = 0; row < rows_; ++row) {
        if (group_of(row) != name) fitted.push_back(row);
      }
      std::vector<SparseRow> jacobian = jacobian_;
      const Vector logs =
          fitter_.Fit(fitted, start != nullptr ? *start : start_, fixed, jacobian, false);
      for (const size_t row : held_out) errors[row] = std::expm1(fitter_.Residual(row, logs));
    }
    return errors;
  }

 private:
  Fitter& fitter_;
  size_t rows_;
  const Vector& start_;
  const std::vector<SparseRow>& jacobian_;
};

}  // namespace

FitResult FitPublishedRuns(const std::vector<ValidationRow>& rows, RunPredictor& predictor) {
  Fitter fitter(rows, predictor);
  FitResult result;
  result.constants = fitter.constants();
  std::vector<size_t> all;
  for (size_t row = 0; row < rows.size(); ++row) all.push_back(row);
  std::vector<SparseRow> jacobian(rows.size());
  Vector start;
  for (const FitConstant& constant : result.constants) {
    start.push_back(std::clamp(0.0, constant.least, constant.most));
  }
  result.logs = fitter.Fit(all, start, {}, jacobian, true);
  LogInfo("fitted {} constants to {} rows", result.constants.size(), rows.size());
  for (const size_t row : all) {
    const double residual = fitter.Residual(row, result.logs);
    result.errors.push_back(std::expm1(residual));
    jacobian[row] = fitter.Derivatives(row, result.logs, residual);
  }
  result.sds = fitter.Spreads(all, result.logs, jacobian);

  CrossValidation validation(fitter, rows.size(), result.logs, jacobian);
  const auto fold = [&](size_t row) { return std::to_string(FoldOf(rows[row].published.family)); };
  result.by_family = validation.Errors(fold);
  LogInfo("held out families in {} folds", kFolds);
  result.by_source = validation.Errors([&](size_t row) { return rows[row].published.source; });
  LogInfo("held out each source");
  result.by_gpu = validation.Errors([&](size_t row) { return rows[row].published.hardware.gpu; });
  LogInfo("held out each GPU");
  for (const ConstantKind& kind : ConstantKinds()) {
    std::set<size_t> fixed;
    Vector without = result.logs;
    for (size_t i = 0; i < result.constants.size(); ++i) {
      const FitConstant& constant = result.constants[i];
      if (constant.kind != &kind) continue;
      fixed.insert(i);
      // What has no neutral value keeps what was expected of it.
      without[i] = kind.neutral > 0 ? std::log(kind.neutral / constant.shipped) : constant.prior;
    }
    if (fixed.empty()) continue;
    const std::string name = (kind.of_stack ? "stack " : "machine ") + kind.name;
    result.without.emplace_back(name, validation.Errors(fold, fixed, &without));
    LogInfo("held {} fixed", name);
  }
  return result;
}

}  // namespace trimtab

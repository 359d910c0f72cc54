// Finds the constants that predictions of published runs fit best with.
//
// What is least: the sum over rows of w rho(r / sigma), with r the logarithm of predicted /
// measured, rho the pseudo-Huber loss (linear for outliers), and w = (rows of the family)^-0.4, for
// rows of a family say much the same; and for each constant the square of what its logarithm is off
// its prior by, in standard deviations (a maximum a posteriori estimate). Solved by Gauss-Newton
// with Levenberg's damping and derivatives by differences.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "cost_model/validation/fit_constants.h"
#include "cost_model/validation/predictor.h"

namespace trimtab {

/// Logarithms of the factors of constants, by constant.
using Logs = std::vector<double>;
/// Derivatives of what is predicted of a row: of which constant's logarithm, and their value.
using Derivatives = std::vector<std::pair<size_t, double>>;

/// Not thread-safe.
class ConstantFitter {
 public:
  /// `rows` have the outcome that is fitted, and must outlive this like `predictor`.
  ConstantFitter(const std::vector<ValidationRow>& rows, RunPredictor& predictor, Outcome outcome);

  const std::vector<FitConstant>& constants() const { return constants_; }
  size_t rows() const { return rows_.size(); }

  /// Logarithm of predicted / measured.
  double Residual(size_t row, const Logs& logs);
  /// About `logs`, where the residual is `residual`.
  Derivatives DerivativesOf(size_t row, const Logs& logs, double residual);

  /// The constants that fit the rows `fitted` best, from `start`; those `fixed` stay. `jacobian`,
  /// by row, is made anew before each step if `fresh`, and else taken as it is.
  Logs Fit(const std::vector<size_t>& fitted, const Logs& start, const std::set<size_t>& fixed,
           std::vector<Derivatives>& jacobian, bool fresh);

  /// `logs`, with those at what was expected of them that the rows `fitted` say nothing about: so
  /// nothing is left of rows that are held out. Those `fixed` stay.
  Logs ForgetUnless(const std::vector<size_t>& fitted, const Logs& logs,
                    const std::set<size_t>& fixed) const;

  /// Standard deviations of the constants after a fit of `fitted`: of the inverse of the curvature.
  std::vector<double> Spreads(const std::vector<size_t>& fitted, const Logs& logs,
                              const std::vector<Derivatives>& jacobian);

 private:
  using Vector = std::vector<double>;
  using Matrix = std::vector<Vector>;

  Vector ResidualsOf(const std::vector<size_t>& rows, const Logs& logs);
  double PriorError(size_t i, const Logs& logs) const;
  double Loss(const std::vector<size_t>& rows, const Vector& residuals, const Logs& logs) const;
  double CountOf(size_t row, double residual) const;
  Matrix Curvature(const std::vector<size_t>& rows, const Vector& residuals,
                   const std::vector<Derivatives>& jacobian) const;
  Logs Step(const std::vector<size_t>& rows, const Vector& residuals, const Logs& logs,
            const std::set<size_t>& fixed, const std::vector<Derivatives>& jacobian,
            double damping) const;

  const std::vector<ValidationRow>& rows_;
  RunPredictor& predictor_;
  Outcome outcome_;
  std::vector<FitConstant> constants_;
  std::vector<std::vector<size_t>> concerned_;  // constants, by row
  Vector weights_;
};

}  // namespace trimtab

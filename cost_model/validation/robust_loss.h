// What a fit makes least: the sum over rows of w rho(r / sigma), with r the logarithm of predicted
// over measured and rho the pseudo-Huber loss (linear for outliers), and for each constant the
// square of what its logarithm is off its prior by, in standard deviations (a maximum a posteriori
// estimate).
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "cost_model/validation/fit_constants.h"

namespace trimtab {

/// Logarithms of the factors of constants, by constant.
using Logs = std::vector<double>;
/// Derivatives of what is predicted of a row: of which constant's logarithm, and their value.
using Derivatives = std::vector<std::pair<size_t, double>>;

/// Some rows about a point: what they are off by there, and its derivatives.
struct LinearRows {
  std::vector<double> weights;
  std::vector<double> residuals;
  std::vector<const Derivatives*> derivatives;
};

class RobustLoss {
 public:
  using Matrix = std::vector<std::vector<double>>;

  explicit RobustLoss(const std::vector<FitConstant>& constants) : constants_(constants) {}

  double Of(const std::vector<double>& weights, const std::vector<double>& residuals,
            const Logs& logs) const;

  /// Of `rows` and priors, with outliers counted less.
  Matrix Curvature(const LinearRows& rows) const;

  struct Next {
    Logs logs;
    double loss = 0;  // there, with what the step costs
  };
  /// From `logs`, which `rows` are about, to where the loss would be least if residuals were
  /// linear, and were to cost `damping` times their curvature. Constants stay in their ranges and
  /// within a change that lines may be believed for; those `fixed` stay where they are.
  Next Step(const LinearRows& rows, const Logs& logs, const std::set<size_t>& fixed,
            double damping) const;

 private:
  double PriorError(size_t i, const Logs& logs) const;

  const std::vector<FitConstant>& constants_;
};

}  // namespace trimtab

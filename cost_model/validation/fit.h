// Fits the constants of hardware profiles and software stacks to published runs, and says how well
// predictions do on runs that a fit has not seen.
//
// What is least: the sum over rows of w rho(r / sigma), with r the logarithm of predicted /
// measured seconds, rho the pseudo-Huber loss (linear for outliers), and w = (rows of the
// family)^-0.4, for rows of a family say much the same; and for each constant the square of what
// its logarithm is off its prior by, in standard deviations (a maximum a posteriori estimate).
// Solved by Gauss-Newton with Levenberg's damping and derivatives by differences.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cost_model/validation/fit_constants.h"
#include "cost_model/validation/predictor.h"

namespace trimtab {

/// A fit without some rows, or without some constant.
struct HeldOut {
  std::string what;
  std::vector<double> errors;  // of rows that were not fitted, by row: predicted / measured - 1
};

struct FitResult {
  std::vector<FitConstant> constants;
  std::vector<double> logs;       // of the factors, by constant
  std::vector<double> sds;        // standard deviations of them after the fit
  std::vector<double> errors;     // of the rows that were fitted
  std::vector<double> by_family;  // 5-fold by family, each row held out once
  std::vector<double> by_source;  // one source held out at a time
  std::vector<double> by_gpu;     // one kind of GPU held out at a time
  /// By kind of constant, 5-fold by family with that kind at what says that there is no effect.
  std::vector<std::pair<std::string, std::vector<double>>> without;
};

/// Rows all have a time. Slow: minutes.
FitResult FitPublishedRuns(const std::vector<ValidationRow>& rows, RunPredictor& predictor);

}  // namespace trimtab

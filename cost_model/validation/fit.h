// Fits the constants of hardware profiles and software stacks to published runs, and says how well
// predictions do on runs that a fit has not seen.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cost_model/validation/constant_fitter.h"

namespace trimtab {

/// Errors by row, predicted / measured - 1, of rows that a fit did not see.
struct HeldOut {
  std::vector<double> by_family;  // 5-fold by family, each row held out once
  std::vector<double> by_source;  // one source held out at a time
  std::vector<double> by_gpu;     // one kind of GPU held out at a time
};

struct FitResult {
  std::vector<FitConstant> constants;
  Logs logs;                   // of the factors, by constant
  std::vector<double> sds;     // standard deviations of them after the fit
  std::vector<double> errors;  // of the rows that were fitted
  /// By row, half-widths of their intervals: where stack and GPU are known, and where one is not.
  std::vector<double> known_half_widths;
  std::vector<double> other_half_widths;
  HeldOut held_out;
  /// By kind of constant, 5-fold by family with that kind at what says that there is no effect, or
  /// where there is no such value at its prior.
  std::vector<std::pair<std::string, std::vector<double>>> without;
};

/// Rows all have the outcome. `worths`: of each kind of constant as well, which takes as long as
/// everything else. Slow: seconds.
FitResult FitPublishedRuns(const std::vector<ValidationRow>& rows, RunPredictor& predictor,
                           Outcome outcome, bool worths);

}  // namespace trimtab

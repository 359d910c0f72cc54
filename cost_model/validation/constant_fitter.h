// Finds the constants that predictions of published runs fit best with.
//
// A row's weight is (rows of its family)^-0.4, for rows of a family say much the same. The loss
// (robust_loss.h) is made least step by step with Levenberg's damping, from derivatives by
// differences that each step corrects.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "cost_model/validation/fit_constants.h"
#include "cost_model/validation/predictor.h"
#include "cost_model/validation/robust_loss.h"

namespace trimtab {

/// Not thread-safe.
class ConstantFitter {
 public:
  /// `rows` have the outcome that is fitted, and must outlive this like `predictor`.
  ConstantFitter(const std::vector<ValidationRow>& rows, RunPredictor& predictor, Outcome outcome);

  const std::vector<FitConstant>& constants() const { return constants_; }
  size_t rows() const { return rows_.size(); }

  /// Logarithm of predicted / measured.
  double Residual(size_t row, const Logs& logs);
  /// About `logs`, by row.
  std::vector<Derivatives> DerivativesAt(const Logs& logs);

  /// The constants that fit the rows `fitted` best, from `start`; those `fixed` stay. `jacobian`,
  /// by row, is about `start`, and is corrected by what each step did.
  Logs Fit(const std::vector<size_t>& fitted, const Logs& start, const std::set<size_t>& fixed,
           std::vector<Derivatives>& jacobian);

  /// `logs`, with those at what was expected of them that the rows `fitted` say nothing about: so
  /// nothing is left of rows that are held out. Those `fixed` stay.
  Logs ForgetUnless(const std::vector<size_t>& fitted, const Logs& logs,
                    const std::set<size_t>& fixed) const;

  /// Standard deviations of the constants after a fit of `fitted`: of the inverse of the curvature.
  std::vector<double> Spreads(const std::vector<size_t>& fitted, const Logs& logs,
                              const std::vector<Derivatives>& jacobian);

 private:
  using Vector = std::vector<double>;

  /// work(i) for each i of rows[i], on all cores: those that share recordings on one.
  void OnRows(const std::vector<size_t>& rows, const std::function<void(size_t)>& work) const;
  Vector ResidualsOf(const std::vector<size_t>& rows, const Logs& logs);
  LinearRows RowsOf(const std::vector<size_t>& rows, const Logs& logs,
                    const std::vector<Derivatives>& jacobian);

  const std::vector<ValidationRow>& rows_;
  RunPredictor& predictor_;
  Outcome outcome_;
  std::vector<FitConstant> constants_;
  std::vector<std::vector<size_t>> concerned_;  // constants, by row
  std::vector<size_t> share_of_;  // by row: which of those that share recordings it belongs to
  Vector weights_;
  RobustLoss loss_;
};

}  // namespace trimtab

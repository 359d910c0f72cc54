#include "profiler/two_way_fit.h"

#include <algorithm>
#include <cmath>

#include "profiler/matrix.h"

namespace trimtab {
namespace {

constexpr int kSweeps = 40;
constexpr double kSettled = 1e-3;  // relative change of both scatters at which it ends early
constexpr double kWhole = 2;       // standard deviations within which a cell counts whole
// What that leaves of a normal distribution's variance: the mean of min(z^2, 4).
constexpr double kVarianceLeft = 0.92;
// How many columns' worth of evidence their expected scatter is.
constexpr double kExpectedColumnsWeight = 2;

std::vector<double> WeightsOf(const std::vector<TableCell>& cells) {
  std::vector<double> weights;
  for (const TableCell& cell : cells) weights.push_back(cell.weight);
  return weights;
}

/// Expectation maximisation: levels given the scatters, then scatters given the levels.
class Fitter {
 public:
  Fitter(const std::vector<TableCell>& cells, size_t rows, size_t columns,
         const TwoWayOptions& options)
      : cells_(cells),
        rows_(rows),
        size_(rows + columns),
        options_(options),
        weights_(WeightsOf(cells)),
        variance_(options.expected_scatter * options.expected_scatter),
        column_variance_(options.expected_columns * options.expected_columns) {}

  TwoWayFit Fit() {
    for (int i = 0; i < kSweeps; ++i) {
      Solve();
      const double before = variance_;
      const double columns_before = column_variance_;
      UpdateScatter();
      if (std::abs(variance_ / before - 1) < kSettled &&
          std::abs(column_variance_ / columns_before - 1) < kSettled) {
        break;
      }
    }
    TwoWayFit fit;
    fit.rows.assign(levels_.begin(), levels_.begin() + static_cast<std::ptrdiff_t>(rows_));
    fit.covariance.assign(rows_, {});
    for (size_t row = 0; row < rows_; ++row) {
      const auto begin = covariance_[row].begin();
      fit.covariance[row].assign(begin, begin + static_cast<std::ptrdiff_t>(rows_));
    }
    fit.variance = variance_;
    fit.column_variance = column_variance_;
    fit.degrees_of_freedom =
        std::max(0.0, static_cast<double>(cells_.size()) - static_cast<double>(size_) + 1) +
        options_.expected_scatter_weight;
    return fit;
  }

 private:
  void Solve() {
    covariance_.assign(size_, std::vector<double>(size_, 0.0));
    std::vector<double> right(size_, 0.0);
    for (size_t i = 0; i < cells_.size(); ++i) {
      const size_t row = cells_[i].row;
      const size_t column = rows_ + cells_[i].column;
      const double precision = weights_[i] / variance_;
      covariance_[row][row] += precision;
      covariance_[column][column] += precision;
      covariance_[row][column] += precision;
      covariance_[column][row] += precision;
      right[row] += precision * cells_[i].value;
      right[column] += precision * cells_[i].value;
    }
    for (size_t row = 0; row < options_.row_variance.size(); ++row) {
      covariance_[row][row] += 1 / options_.row_variance[row];
    }
    for (size_t column = rows_; column < size_; ++column) {
      covariance_[column][column] += 1 / column_variance_;
    }
    InvertSymmetric(covariance_);
    levels_.assign(size_, 0.0);
    for (size_t i = 0; i < size_; ++i) {
      for (size_t j = 0; j < size_; ++j) levels_[i] += covariance_[i][j] * right[j];
    }
  }

  void UpdateScatter() {
    const double expected = options_.expected_scatter * options_.expected_scatter;
    double sum = options_.expected_scatter_weight * expected;
    double count = options_.expected_scatter_weight;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const size_t row = cells_[i].row;
      const size_t column = rows_ + cells_[i].column;
      const double residual = cells_[i].value - levels_[row] - levels_[column];
      const double unsure =
          covariance_[row][row] + covariance_[column][column] + 2 * covariance_[row][column];
      const double given = cells_[i].weight;
      const double limit = kWhole * kWhole * variance_ / given;
      const double square = residual * residual;
      weights_[i] = square <= limit ? given : given * limit / square;
      sum += weights_[i] * (residual * residual / kVarianceLeft + unsure);
      count += 1;
    }
    variance_ = sum / count;

    sum = kExpectedColumnsWeight * options_.expected_columns * options_.expected_columns;
    count = kExpectedColumnsWeight;
    for (size_t column = rows_; column < size_; ++column) {
      sum += levels_[column] * levels_[column] + covariance_[column][column];
      count += 1;
    }
    column_variance_ = sum / count;
  }

  const std::vector<TableCell>& cells_;
  const size_t rows_;
  const size_t size_;  // rows and columns
  const TwoWayOptions& options_;
  std::vector<double> weights_;  // of the cells
  double variance_;
  double column_variance_;
  std::vector<double> levels_;  // of the rows, then of the columns
  Matrix covariance_;           // of the levels
};

}  // namespace

TwoWayFit FitTwoWay(const std::vector<TableCell>& cells, size_t rows, size_t columns,
                    const TwoWayOptions& options) {
  return Fitter(cells, rows, columns, options).Fit();
}

}  // namespace trimtab

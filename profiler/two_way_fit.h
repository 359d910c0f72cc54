// Two-way fit: a table with holes as rows plus columns, robustly.
#pragma once

#include <cstddef>
#include <vector>

#include "profiler/matrix.h"

namespace trimtab {

/// One value of the table: about row + column. A cell may occur more than once.
struct TableCell {
  size_t row = 0;
  size_t column = 0;
  double value = 0;
  double weight = 1;  // 0.25 = it scatters by twice as much as others
};

struct TwoWayOptions {
  /// What is known of the rows beforehand: each is about 0, with this variance. Empty = nothing.
  std::vector<double> row_variance{};
  /// What the scatter of a cell is taken for before any is seen: a standard deviation, and how many
  /// cells' worth of evidence it is.
  double expected_scatter = 0.01;
  double expected_scatter_weight = 3;
  /// What columns are taken to scatter by before any is seen.
  double expected_columns = 0.1;
};

struct TwoWayFit {
  std::vector<double> rows;
  Matrix covariance;    // of the rows
  double variance = 0;  // of one cell
  double column_variance = 0;
  double degrees_of_freedom = 0;  // behind `variance`
};

/// Fits value = row + column + scatter by maximum likelihood. Columns are drawn from one normal
/// distribution around 0 whose variance is fitted too, so rows that share no column can still be
/// compared, as surely as columns are alike. A cell that strays by more than twice the scatter
/// counts the less the further it strays (Huber, Robust Estimation of a Location Parameter, 1964),
/// so one disturbed cell moves little. Every row must have a cell, unless its variance is given.
TwoWayFit FitTwoWay(const std::vector<TableCell>& cells, size_t rows, size_t columns,
                    const TwoWayOptions& options);

}  // namespace trimtab

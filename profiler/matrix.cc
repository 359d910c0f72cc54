#include "profiler/matrix.h"

#include <cmath>
#include <cstddef>

#include "engine/base/error.h"

namespace trimtab {

void InvertSymmetric(Matrix& matrix) {
  // Gauss-Jordan elimination; what is positive definite needs no exchange of rows.
  const size_t n = matrix.size();
  for (size_t pivot = 0; pivot < n; ++pivot) {
    const double inverse = 1 / matrix[pivot][pivot];
    TRIMTAB_ASSERT(std::isfinite(inverse), "row {} of a singular matrix", pivot);
    matrix[pivot][pivot] = 1;
    for (double& value : matrix[pivot]) value *= inverse;
    for (size_t row = 0; row < n; ++row) {
      if (row == pivot) continue;
      const double factor = matrix[row][pivot];
      if (factor == 0) continue;
      matrix[row][pivot] = 0;
      for (size_t column = 0; column < n; ++column) {
        matrix[row][column] -= factor * matrix[pivot][column];
      }
    }
  }
}

}  // namespace trimtab

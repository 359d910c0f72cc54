// Cholesky's decomposition of a symmetric positive definite matrix.
#pragma once

#include <vector>

namespace trimtab {

class Cholesky {
 public:
  /// Factors `matrix`, given as rows, of which the lower half is not read.
  explicit Cholesky(std::vector<std::vector<double>> matrix);

  /// The x of matrix * x = b.
  std::vector<double> Solve(std::vector<double> b) const;

 private:
  std::vector<std::vector<double>> upper_;
};

}  // namespace trimtab

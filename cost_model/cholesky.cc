#include "cost_model/cholesky.h"

#include <cmath>
#include <utility>

namespace trimtab {

Cholesky::Cholesky(std::vector<std::vector<double>> matrix) : upper_(std::move(matrix)) {
  std::vector<std::vector<double>>& a = upper_;
  for (size_t j = 0; j < a.size(); ++j) {
    const double root = std::sqrt(a[j][j]);
    for (size_t k = j; k < a.size(); ++k) a[j][k] /= root;
    for (size_t i = j + 1; i < a.size(); ++i) {
      const double factor = a[j][i];
      if (factor == 0) continue;  // what has nothing in common costs nothing
      for (size_t k = i; k < a.size(); ++k) a[i][k] -= factor * a[j][k];
    }
  }
}

std::vector<double> Cholesky::Solve(std::vector<double> b) const {
  const size_t n = upper_.size();
  for (size_t i = 0; i < n; ++i) {
    b[i] /= upper_[i][i];
    for (size_t k = i + 1; k < n; ++k) b[k] -= upper_[i][k] * b[i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= upper_[i][k] * b[k];
    b[i] /= upper_[i][i];
  }
  return b;
}

}  // namespace trimtab

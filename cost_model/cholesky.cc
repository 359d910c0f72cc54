#include "cost_model/cholesky.h"

#include <cmath>
#include <utility>

namespace trimtab {

Cholesky::Cholesky(std::vector<std::vector<double>> matrix) : lower_(std::move(matrix)) {
  std::vector<std::vector<double>>& a = lower_;
  for (size_t j = 0; j < a.size(); ++j) {
    for (size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < a.size(); ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
}

std::vector<double> Cholesky::Solve(std::vector<double> b) const {
  const size_t n = lower_.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= lower_[i][k] * b[k];
    b[i] /= lower_[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= lower_[k][i] * b[k];
    b[i] /= lower_[i][i];
  }
  return b;
}

}  // namespace trimtab

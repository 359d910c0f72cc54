// Small dense matrices, as rows.
#pragma once

#include <vector>

namespace trimtab {

using Matrix = std::vector<std::vector<double>>;

/// Inverts a symmetric positive definite matrix in place. One that is singular is a programmer's
/// fault.
void InvertSymmetric(Matrix& matrix);

}  // namespace trimtab

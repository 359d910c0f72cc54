// The nearest semi-orthogonal matrix, about: what Muon (Jordan et al., 2024; Liu et al.,
// arXiv:2502.16982) makes of momentum.
#pragma once

#include "engine/device/tensor.h"

namespace trimtab {

/// Sets x [rows, columns] (fp32, bf16) to about U V^T, where x is U S V^T: its singular values
/// become some value near 1 (0.7 to 1.2) by five Newton-Schulz iterations with the coefficients of
/// the published code. Products are in x's type.
void Orthogonalize(Tensor& x);

}  // namespace trimtab

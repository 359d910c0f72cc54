// Reading the numbers of one panel of packed_gemm.h: into memory, or straight into a product with
// one row. Scales are left to the caller.
#pragma once

#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel as floats: block [columns, kPanelRows].
void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

/// sums [kPanelRows] += x [columns] times these columns: each sum one chain of multiply-adds, the
/// same as OrderedProduct makes of what UnpackNumbers gives.
void MultiplyRow(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                 const float* x, float* sums);

}  // namespace trimtab

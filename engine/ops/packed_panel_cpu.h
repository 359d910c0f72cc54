// Reading the numbers of one panel of packed_gemm.h: into memory, or straight into a product with
// one row; or those of one row of W.
#pragma once

#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel as floats, without scales: block [columns,
/// kPanelRows]. `first` begins a word.
void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

/// values [in] = row `row` of the one matrix `packed`, times its input scales: what was packed. It
/// is in this process's memory.
void UnpackRow(const PackedMatrix& packed, int64_t row, float* values);

/// y [kPanelRows] = x [columns] times all columns of a panel and their scales (nullptr without):
/// each sum one chain of multiply-adds, the same as OrderedProduct makes of what UnpackNumbers
/// gives; with int4 one chain per group, times its scale, added up group after group.
void MultiplyRow(WeightFormat format, const void* panel, const float* scales, int64_t columns,
                 const float* x, float* y);

}  // namespace trimtab

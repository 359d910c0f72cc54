// Reading the numbers of one panel of packed_gemm.h: into memory, or straight into a product with
// one row; or those of one row of W.
#pragma once

#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel as floats, without scales: block [columns,
/// kPanelRows]. `first` begins a word.
void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

/// As UnpackNumbers, of the factors (packed_factors.h).
void UnpackFactors(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

/// values [in] = row `row` of the one matrix `packed`, times its input scales: what was packed. It
/// is in this process's memory.
void UnpackRow(const PackedMatrix& packed, int64_t row, float* values);

/// Neighbouring panels of one matrix, with their scales (nullptr without).
struct PanelRun {
  const void* numbers;
  const float* scales;
  int64_t count;
};

/// y [count, kPanelRows] = prepared inputs x [columns] times all columns of each panel and their
/// scales: each sum one chain of multiply-adds, the same as OrderedProduct makes of what
/// UnpackFactors gives; with int4 one chain per group, from its start, times its scale, added up
/// group after group. `starts` is of no interest to the other formats.
void MultiplyRow(WeightFormat format, const PanelRun& panels, int64_t columns, const float* x,
                 const float* starts, float* y);

}  // namespace trimtab

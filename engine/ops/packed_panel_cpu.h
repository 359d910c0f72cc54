// Reading the numbers of one panel of packed_gemm.h: into memory, or straight into a product with
// one row; or those of one row of W.
#pragma once

#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel as floats, without scales: block [columns,
/// kPanelRows]. `first` begins a word.
void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

// Products do not take integers as such, for that takes more operations than the rest: they take
// factors, which are the numbers times a power of two of their column; of int4 all but one of a
// word are larger by 8 besides. Inputs are divided by the same powers, and every sum over a group
// starts with what the eights come to.

/// Whether products take inputs that are prepared; the others take them as they are.
bool PreparesInputs(WeightFormat format);
/// prepared [columns] and, with int4, starts [columns / kInt4Group] of one row of inputs x.
void PrepareInputs(WeightFormat format, int64_t columns, const float* x, float* prepared,
                   float* starts);

/// As UnpackNumbers, of the factors.
void UnpackFactors(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block);

/// values [in] = row `row` of the one matrix `packed`, times its input scales: what was packed. It
/// is in this process's memory.
void UnpackRow(const PackedMatrix& packed, int64_t row, float* values);

/// y [kPanelRows] = prepared inputs x [columns] times all columns of a panel and their scales
/// (nullptr without): each sum one chain of multiply-adds, the same as OrderedProduct makes of what
/// UnpackFactors gives; with int4 one chain per group, from its start, times its scale, added up
/// group after group. `starts` is of no interest to the other formats.
void MultiplyRow(WeightFormat format, const void* panel, const float* scales, int64_t columns,
                 const float* x, const float* starts, float* y);

}  // namespace trimtab

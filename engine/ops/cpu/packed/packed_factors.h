// What products with packed numbers multiply by.
//
// Products do not take integers as such, for that takes more operations than the rest: they take
// factors, which are the numbers times a power of two of their column; of int4 all but one of a
// word are larger by 8 besides. Inputs are divided by the same powers, and every sum over a group
// starts with what the eights come to.
#pragma once

#include <array>

#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// A factor times `unit`, less `offset`, is the number.
struct FactorRule {
  float unit = 1;
  float offset = 0;
};

/// Of the columns that share a word, in turn.
std::array<FactorRule, 8> RulesOf(WeightFormat format);

/// Whether products take inputs that are prepared; the others take them as they are.
bool PreparesInputs(WeightFormat format);
/// prepared [columns] and, with int4, starts [columns / kInt4Group] of one row of inputs x, whose
/// first column begins a word; the others are copied.
void PrepareInputs(WeightFormat format, int64_t columns, const float* x, float* prepared,
                   float* starts);

}  // namespace trimtab

// The numbers of a panel of packed_gemm.h as pairs of bf16, which is what a matrix unit multiplies
// by (packed_tiles_cpu.h): for each output, two neighbouring columns share a word.
#pragma once

#include <cstdint>

#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Bytes of a row of words: one for each output of a panel.
inline constexpr int64_t kWordRowBytes = kPanelRows * 4;

/// Spreads `columns` columns, with int4 whole groups of them, from `words` on into rows of pairs,
/// those of int8 times 2^24; what is left of the last kTileColumns with zeros. With int4, columns
/// are in the order that SplitRow gives them. Of bf16, int8 and int4, on a core with AVX-512.
void SpreadPanel(WeightFormat format, const char* words, int64_t columns, char* pairs);

}  // namespace trimtab

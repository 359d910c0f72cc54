// Products of packed_gemm.h on the matrix unit that some x86 cores have (AMX).
//
// A number of bf16 or int4 is one of bf16 as it is, and an input of fp32 is the exact sum of three.
// Their products are those of fp32, and only their sums are rounded, as those of multiply-adds are.
// Every sum is made in the same order, however many rows there are: step after step of columns,
// part after part; with int4 over each group, and then over the groups.
//
// Numbers of int8 are multiplied where they lie, by the bytes of inputs that are whole numbers of
// 24 bits (row_tiles.h): an input is off by at most 2^-23 of the largest of its row, and the
// sums over some thousand columns are exact. With twice as many columns in a tile, that is half the
// work of bf16.
#pragma once

#include <cstdint>

#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cpu/packed/row_tiles.h"
#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Whether this process may use such a unit, and it takes numbers of this format.
bool TakesTiles(WeightFormat format);

/// Panels that are multiplied at a time, and rows of whole tiles, at most.
inline constexpr int64_t kTilePanels = 4;
inline constexpr int64_t kMostTileRows = 128;

/// results [count * height, panels.count * kPanelRows] = tiles [first, first + count) of rows times
/// all columns of each panel and, with int4, the scales of their groups; those of int8 are yet to
/// be multiplied by.
void MultiplyTiles(WeightFormat format, const PanelRun& panels, const RowTiles& tiles,
                   int64_t first, int64_t count, float* results);

}  // namespace trimtab
